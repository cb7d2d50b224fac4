// Weighted marginal log-likelihood of a mixture of normals: outcomes y of pairs with their cells and
// weights (mass), means of cells by component (G x H), log shares and SDs of the components.
real mixture_pairs(vector y, array[] int cell, vector mass, matrix mean, vector log_shares,
                   vector sd) {
  int P = rows(y);
  vector[rows(sd)] constant = log_shares - log(sd) - 0.5 * log(2 * pi());
  vector[P] log_lik;
  for (p in 1 : P)
    log_lik[p] = log_sum_exp(constant - 0.5 * square((y[p] - mean[cell[p]]') ./ sd));
  return dot_product(mass, log_lik);
}
