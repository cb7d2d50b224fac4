// Regression of a count y, negative binomial of mean exp(x beta) and variance mu + mu^2 / phi, and,
// where there is a survey weight, log w | y ~ N(x gamma + delta log(1 + y), s^2); each record raised
// to its risk weight alpha_i. The data enter through sums by cell of X and by distinct count only.
functions {
#include functions/half_student_t.stan
#include functions/coefficients.stan
#include functions/negative_binomial_cells.stan
#include functions/conditional_squares.stan
#include functions/normal_squares.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=0, upper=K> K_shrunken; // the last of them, of interactions with a ridge
  int<lower=0> G; // cells of X
  matrix[G, K] x;
  vector<lower=0>[G] mass; // sum of alpha by cell
  vector<lower=0>[G] sums; // sum of alpha y by cell
  real log_factorials; // sum of alpha log y!
  int<lower=0> D; // distinct counts
  vector<lower=0>[D] values;
  vector<lower=0>[D] value_mass; // sum of alpha by distinct count
  int<lower=0, upper=1> has_weight;
  real<lower=0> total; // sum of alpha, one for each ridge; the rest is of Z = (log(1 + y), log w), zeros without weight
  matrix[K, K] gram; // X'AX, A = diag(alpha)
  matrix[K, 2] fit; // a solution b of X'AX b = X'AZ
  matrix[2, 2] residual; // (Z - X fit)'A(Z - X fit)
  real<lower=0> coefficient_scale_prior; // scales of the half-t priors
  real<lower=0> lkj;
  real<lower=0> interaction_scale; // prior SD of beta of shrunken columns
  real<lower=0> overdispersion_scale; // 1/phi ~ half-Cauchy
  real<lower=0> weight_coefficient_sd; // prior SD of delta and gamma
  real<lower=0> weight_residual_scale; // scale of the half-t prior of s
}
transformed data {
  real df = 3;
  int L = K - K_shrunken;
}
parameters {
  vector[K] beta;
  vector<lower=0>[1] overdispersion; // phi
  vector<lower=0>[L] coefficient_scale;
  cholesky_factor_corr[L] coefficient_root;
  vector[has_weight * (K + 1)] weight_coefficients; // delta, then gamma
  vector<lower=0>[has_weight] weight_sd;
}
model {
  target += negative_binomial_cells(x * beta, overdispersion[1], mass, sums, values, value_mass)
            - log_factorials;
  target += coefficients_lpdf(to_matrix(beta[1 : L]) | to_matrix(coefficient_scale), coefficient_root);
  target += normal_lpdf(tail(beta, K_shrunken) | 0, interaction_scale);
  target += half_student_t_lpdf(coefficient_scale | df, coefficient_scale_prior);
  target += lkj_corr_cholesky_lpdf(coefficient_root | lkj);
  // The density of 1/phi, with the Jacobian of the reciprocal.
  target += half_student_t_lpdf(inv(overdispersion) | 1, overdispersion_scale)
            - 2 * log(overdispersion[1]);
  if (has_weight) {
    real delta = weight_coefficients[1];
    vector[K] gamma = weight_coefficients[2 : K + 1];
    target += normal_squares(conditional_squares(delta, gamma, gram, fit, residual), total,
                             weight_sd[1]);
    target += normal_lpdf(weight_coefficients[1 : L + 1] | 0, weight_coefficient_sd);
    target += half_student_t_lpdf(weight_sd | df, weight_residual_scale);
  }
}
