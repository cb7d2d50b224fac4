// Weighted log-likelihood of Poisson counts but for the log factorials: log means eta of cells, their
// weight (mass) and weighted sums of counts.
real poisson_cells(vector eta, vector mass, vector sums) {
  return dot_product(sums, eta) - dot_product(mass, exp(eta));
}
