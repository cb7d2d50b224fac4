// Log density of effects N(T b, T) over N(0, T), rows of a and T = root root': PSUs sampled with
// probability in proportion to exp(b'a).
real psu_tilt(matrix a, vector b, matrix root) {
  return sum(a * b) - 0.5 * rows(a) * dot_self(root' * b);
}
