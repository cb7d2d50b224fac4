// FBS: z_i = (transformed outcomes, log weight) ~ N(x_i beta, Sigma), each record raised to its
// risk weight alpha_i. The data enter through weighted sufficient statistics only, so a gradient
// costs the same at any number of records.
// Two coefficients inform each prior scale, and where the data leave a coefficient near zero its
// scale makes a funnel of it. So NUTS moves what is left of the coefficients once they are centred
// and whitened by their distribution given all else, of which the scales are free.
functions {
#include functions/half_student_t.stan
#include functions/lower_trace.stan
#include functions/weighted_squares.stan
#include functions/coefficient_precision.stan
#include functions/coefficients.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=0, upper=K> K_shrunken; // the last of them, of interactions with a ridge
  int<lower=1> q; // outcomes and the log weight, which is last
  real<lower=0> total; // sum of alpha, and one for each column with a ridge, which is in the sums
  matrix[K, K] gram; // X'AX, A = diag(alpha)
  matrix[K, q] fit; // a solution b of X'AX b = X'AZ
  matrix[q, q] residual; // (Z - X fit)'A(Z - X fit)
  real<lower=0> coefficient_scale_prior; // scales of the half-t priors
  real<lower=0> residual_scale_prior;
  real<lower=0> lkj;
}
transformed data {
  real df = 3;
  int L = K - K_shrunken;
}
parameters {
  vector[K * q] white; // whitened coefficients
  vector<lower=0>[q] residual_scale;
  cholesky_factor_corr[q] residual_root;
  matrix<lower=0>[L, q] coefficient_scale;
  cholesky_factor_corr[L] coefficient_root;
}
transformed parameters {
  matrix[K, q] beta;
  real log_volume; // log |d beta / d white|
  {
    matrix[q, q] precision = chol2inv(diag_pre_multiply(residual_scale, residual_root));
    matrix[K * q, K * q] root = cholesky_decompose(
      coefficient_precision(gram, precision, coefficient_scale, coefficient_root));
    matrix[K, q] pull = gram * fit * precision;
    vector[K * q] centred = mdivide_left_tri_low(root, to_vector(pull)) + white;
    beta = to_matrix(mdivide_right_tri_low(centred', root)', K, q);
    log_volume = -sum(log(diagonal(root)));
  }
}
model {
  matrix[q, q] root = diag_pre_multiply(residual_scale, residual_root);
  matrix[q, q] squares = weighted_squares(beta, gram, fit, residual);
  target += -total * (0.5 * q * log(2 * pi()) + sum(log(diagonal(root))))
            - 0.5 * lower_trace(root, squares) + log_volume;
  target += coefficients_lpdf(beta[1 : L] | coefficient_scale, coefficient_root);
  target += half_student_t_lpdf(to_vector(coefficient_scale) | df, coefficient_scale_prior);
  target += lkj_corr_cholesky_lpdf(coefficient_root | lkj);
  target += half_student_t_lpdf(residual_scale | df, residual_scale_prior);
  target += lkj_corr_cholesky_lpdf(residual_root | lkj);
}
