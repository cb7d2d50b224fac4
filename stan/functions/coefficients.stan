// Columns of beta are independent N(0, D_j Omega D_j): D_j the diagonal of column j of scale, root
// the Cholesky factor of Omega.
real coefficients_lpdf(matrix beta, matrix scale, matrix root) {
  int q = cols(beta);
  return -0.5 * rows(beta) * q * log(2 * pi()) - q * sum(log(diagonal(root)))
         - sum(log(scale))
         - 0.5 * sum(square(mdivide_left_tri_low(root, beta ./ scale)));
}
