// Effects of PSUs, the rows of a, are independent N(0, D Omega D): D the diagonal of scale, root the
// Cholesky factor of Omega.
real psu_effects_lpdf(matrix a, vector scale, matrix root) {
  matrix[cols(a), cols(a)] factor = diag_pre_multiply(scale, root);
  return -rows(a) * (0.5 * cols(a) * log(2 * pi()) + sum(log(diagonal(factor))))
         - 0.5 * sum(square(mdivide_left_tri_low(factor, a')));
}
