// FBS: z_i = (transformed outcomes, log weight) ~ N(x_i beta, Sigma), each record raised to its
// risk weight alpha_i. The data enter through weighted sufficient statistics only, so a gradient
// costs the same at any number of records.
functions {
#include functions/half_student_t.stan
#include functions/lower_trace.stan
#include functions/weighted_squares.stan
#include functions/coefficients.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=1> q; // outcomes and the log weight, which is last
  real<lower=0> total; // sum of alpha
  matrix[K, K] gram; // X'AX, A = diag(alpha)
  matrix[K, q] fit; // a solution b of X'AX b = X'AZ
  matrix[q, q] residual; // (Z - X fit)'A(Z - X fit)
  real<lower=0> coefficient_scale_prior; // scales of the half-t priors
  real<lower=0> residual_scale_prior;
  real<lower=0> lkj;
}
transformed data {
  real df = 3;
}
parameters {
  matrix[K, q] beta;
  vector<lower=0>[q] residual_scale;
  cholesky_factor_corr[q] residual_root;
  matrix<lower=0>[K, q] coefficient_scale;
  cholesky_factor_corr[K] coefficient_root;
}
model {
  matrix[q, q] root = diag_pre_multiply(residual_scale, residual_root);
  target += -total * (0.5 * q * log(2 * pi()) + sum(log(diagonal(root))))
            - 0.5 * lower_trace(root, weighted_squares(beta, gram, fit, residual));
  target += coefficients_lpdf(beta | coefficient_scale, coefficient_root);
  target += half_student_t_lpdf(to_vector(coefficient_scale) | df, coefficient_scale_prior);
  target += lkj_corr_cholesky_lpdf(coefficient_root | lkj);
  target += half_student_t_lpdf(residual_scale | df, residual_scale_prior);
  target += lkj_corr_cholesky_lpdf(residual_root | lkj);
}
