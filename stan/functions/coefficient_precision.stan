// Precision of the coefficients, column under column, given residual precision and prior: columns
// of b, but for rows beyond those of scale, whose prior is in gram, are N(0, D_j Omega D_j), D_j the
// diagonal of column j of scale, root the factor of Omega.
matrix coefficient_precision(matrix gram, matrix residual_precision, matrix scale, matrix root) {
  int K = rows(gram);
  int L = rows(scale);
  int q = cols(scale);
  matrix[L, L] inverse = chol2inv(root);
  matrix[K * q, K * q] precision;
  for (i in 1 : q) {
    int r = (i - 1) * K;
    for (j in 1 : q) {
      int c = (j - 1) * K;
      precision[r + 1 : r + K, c + 1 : c + K] = residual_precision[i, j] * gram;
    }
    precision[r + 1 : r + L, r + 1 : r + L]
      += quad_form_diag(inverse, inv(scale[ : , i]));
  }
  return precision;
}
