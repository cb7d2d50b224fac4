// Regression y ~ N(x beta, sigma^2) of a transformed outcome and, where there is a survey weight,
// log w | y ~ N(x gamma + delta y, s^2); each record raised to its risk weight alpha_i. The data
// enter through weighted sufficient statistics only.
functions {
#include functions/half_student_t.stan
#include functions/coefficients.stan
#include functions/outcome_squares.stan
#include functions/conditional_squares.stan
#include functions/normal_squares.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=0, upper=K> K_shrunken; // the last of them, of interactions with a ridge
  int<lower=0, upper=1> has_weight; // Z = (y, log w), else Z = y
  real<lower=0> total; // sum of alpha, and one for each column with a ridge, which is in the sums
  matrix[K, K] gram; // X'AX, A = diag(alpha)
  matrix[K, 1 + has_weight] fit; // a solution b of X'AX b = X'AZ
  matrix[1 + has_weight, 1 + has_weight] residual; // (Z - X fit)'A(Z - X fit)
  real<lower=0> coefficient_scale_prior; // scales of the half-t priors
  real<lower=0> residual_scale_prior;
  real<lower=0> lkj;
  real<lower=0> weight_coefficient_sd; // prior SD of delta and gamma
  real<lower=0> weight_residual_scale; // scale of the half-t prior of s
}
transformed data {
  real df = 3;
  int L = K - K_shrunken;
}
parameters {
  vector[K] beta;
  vector<lower=0>[1] residual_sd;
  vector<lower=0>[L] coefficient_scale;
  cholesky_factor_corr[L] coefficient_root;
  vector[has_weight * (K + 1)] weight_coefficients; // delta, then gamma
  vector<lower=0>[has_weight] weight_sd;
}
model {
  target += normal_squares(outcome_squares(beta, gram, fit, residual), total, residual_sd[1]);
  target += coefficients_lpdf(to_matrix(beta[1 : L]) | to_matrix(coefficient_scale), coefficient_root);
  target += half_student_t_lpdf(coefficient_scale | df, coefficient_scale_prior);
  target += lkj_corr_cholesky_lpdf(coefficient_root | lkj);
  target += half_student_t_lpdf(residual_sd | df, residual_scale_prior);
  if (has_weight) {
    real delta = weight_coefficients[1];
    vector[K] gamma = weight_coefficients[2 : K + 1];
    target += normal_squares(conditional_squares(delta, gamma, gram, fit, residual), total,
                             weight_sd[1]);
    target += normal_lpdf(weight_coefficients[1 : L + 1] | 0, weight_coefficient_sd);
    target += half_student_t_lpdf(weight_sd | df, weight_residual_scale);
  }
}
