// Weighted sums of squares and products (Z - X b)'A(Z - X b) about a least-squares solution fit,
// where residual is the same at fit and gram is X'AX.
matrix weighted_squares(matrix beta, matrix gram, matrix fit, matrix residual) {
  return residual + quad_form(gram, beta - fit);
}
