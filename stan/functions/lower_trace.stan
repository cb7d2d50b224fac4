// tr((T T')^-1 S) for lower-triangular T and symmetric S.
real lower_trace(matrix T, matrix S) {
  return trace(mdivide_left_tri_low(T, mdivide_left_tri_low(T, S)'));
}
