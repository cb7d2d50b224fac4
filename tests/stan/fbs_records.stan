// FBS as it is written down: one normal density a record, raised to its risk weight.
data {
  int<lower=1> n;
  int<lower=1> K;
  int<lower=1> q;
  matrix[n, K] x;
  matrix[n, q] z;
  vector<lower=0, upper=1>[n] alpha;
  real<lower=0> coefficient_scale_prior;
  real<lower=0> residual_scale_prior;
  real<lower=0> lkj;
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
  for (i in 1 : n) {
    target += alpha[i] * multi_normal_cholesky_lpdf(z[i]' | (x[i] * beta)', root);
  }
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
