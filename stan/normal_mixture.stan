// Mixture of H normal regressions of a transformed outcome, y ~ sum_h pi_h N(x beta_h, s_h^2), and,
// where there is a survey weight, log w | y ~ N(x gamma + delta y, s^2). The marginal likelihood of
// each record is raised to its risk weight alpha_i; records that share x and y are one.
functions {
#include functions/half_student_t.stan
#include functions/coefficients.stan
#include functions/mixture_pairs.stan
#include functions/conditional_squares.stan
#include functions/normal_squares.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=1> H; // components
  int<lower=0> G; // cells of X
  matrix[G, K] x;
  int<lower=0> P; // distinct pairs of cell and outcome
  array[P] int<lower=1, upper=G> cell;
  vector[P] y;
  vector<lower=0>[P] mass; // sum of alpha by pair
  int<lower=0, upper=1> has_weight;
  real<lower=0> total; // sum of alpha; the rest is of Z = (y, log w), zeros without weight
  matrix[K, K] gram; // X'AX, A = diag(alpha)
  matrix[K, 2] fit; // a solution b of X'AX b = X'AZ
  matrix[2, 2] residual; // (Z - X fit)'A(Z - X fit)
  real<lower=0> coefficient_scale_prior; // scales of the half-t priors
  real<lower=0> residual_scale_prior;
  real<lower=0> least_sd;
  real<lower=0> lkj;
  real<lower=0> concentration_shape;
  real<lower=0> concentration_rate;
  real<lower=0> weight_coefficient_sd; // prior SD of delta and gamma
  real<lower=0> weight_residual_scale; // scale of the half-t prior of s
}
transformed data {
  real df = 3;
}
parameters {
  vector[H - 1] logits; // of components 2..H; that of the first is zero
  vector<lower=0>[1] concentration; // a
  matrix[K, H] beta;
  vector<lower=0>[H] above_least_sd;
  vector<lower=0>[K] coefficient_scale;
  cholesky_factor_corr[K] coefficient_root;
  vector[has_weight * (K + 1)] weight_coefficients; // delta, then gamma
  vector<lower=0>[has_weight] weight_sd;
}
model {
  vector[H] log_shares = log_softmax(append_row(0, logits));
  real each = concentration[1] / H;
  target += mixture_pairs(y, cell, mass, x * beta, log_shares, least_sd + above_least_sd);
  // Dirichlet(each) of the shares, with the Jacobian of the logits.
  target += lgamma(concentration[1]) - H * lgamma(each) + each * sum(log_shares);
  target += gamma_lpdf(concentration | concentration_shape, concentration_rate);
  target += coefficients_lpdf(beta | rep_matrix(coefficient_scale, H), coefficient_root);
  target += half_student_t_lpdf(coefficient_scale | df, coefficient_scale_prior);
  target += lkj_corr_cholesky_lpdf(coefficient_root | lkj);
  target += half_student_t_lpdf(above_least_sd | df, residual_scale_prior);
  if (has_weight) {
    real delta = weight_coefficients[1];
    vector[K] gamma = weight_coefficients[2 : K + 1];
    target += normal_squares(conditional_squares(delta, gamma, gram, fit, residual), total,
                             weight_sd[1]);
    target += normal_lpdf(weight_coefficients | 0, weight_coefficient_sd);
    target += half_student_t_lpdf(weight_sd | df, weight_residual_scale);
  }
}
