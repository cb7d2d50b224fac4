// The regressions of fbs.stan and normal.stan as they are written down: one normal density a
// record, raised to its risk weight. Columns of z jointly; with has_weight the log weight given the
// first of them.
data {
  int<lower=1> n;
  int<lower=1> K;
  int<lower=1> q;
  int<lower=0, upper=1> has_weight;
  matrix[n, K] x;
  matrix[n, q] z;
  vector[has_weight * n] log_w;
  vector<lower=0, upper=1>[n] alpha;
  real<lower=0> coefficient_scale_prior;
  real<lower=0> residual_scale_prior;
  real<lower=0> lkj;
  real<lower=0> weight_coefficient_sd;
  real<lower=0> weight_residual_scale;
}
parameters {
  matrix[K, q] beta;
  vector<lower=0>[q] residual_scale;
  cholesky_factor_corr[q] residual_root;
  matrix<lower=0>[K, q] coefficient_scale;
  cholesky_factor_corr[K] coefficient_root;
  vector[has_weight * (K + 1)] weight_coefficients;
  vector<lower=0>[has_weight] weight_sd;
}
model {
  matrix[q, q] root = diag_pre_multiply(residual_scale, residual_root);
  matrix[q, n] standard = mdivide_left_tri_low(root, (z - x * beta)');
  vector[n] log_lik = -0.5 * q * log(2 * pi()) - sum(log(diagonal(root)))
                      - 0.5 * columns_dot_self(standard)';
  if (has_weight) {
    vector[n] mean_w = weight_coefficients[1] * z[, 1] + x * weight_coefficients[2 : K + 1];
    log_lik += -0.5 * log(2 * pi()) - log(weight_sd[1])
               - 0.5 * square((log_w - mean_w) / weight_sd[1]);
    target += normal_lpdf(weight_coefficients | 0, weight_coefficient_sd);
    target += student_t_lpdf(weight_sd[1] | 3, 0, weight_residual_scale) + log2();
  }
  target += dot_product(alpha, log_lik);
  for (j in 1 : q) {
    target += multi_normal_cholesky_lpdf(beta[, j] | rep_vector(0, K),
                                         diag_pre_multiply(coefficient_scale[, j],
                                                           coefficient_root));
    for (k in 1 : K) {
      target += student_t_lpdf(coefficient_scale[k, j] | 3, 0, coefficient_scale_prior) + log2();
    }
    target += student_t_lpdf(residual_scale[j] | 3, 0, residual_scale_prior) + log2();
  }
  target += lkj_corr_cholesky_lpdf(coefficient_root | lkj);
  target += lkj_corr_cholesky_lpdf(residual_root | lkj);
}
