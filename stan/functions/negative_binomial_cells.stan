// Weighted log-likelihood of negative binomial counts (variance mu + mu^2 / phi) but for the log
// factorials: log means eta of cells, their weight (mass) and weighted sums of counts, and the
// weight of each distinct count.
real negative_binomial_cells(vector eta, real phi, vector mass, vector sums, vector values,
                             vector value_mass) {
  vector[rows(eta)] log_odds = eta - log(phi);
  vector[rows(eta)] log_rest = log1p_exp(log_odds);
  return dot_product(sums, log_odds - log_rest) - phi * dot_product(mass, log_rest)
         + dot_product(value_mass, lgamma(phi + values) - lgamma(phi));
}
