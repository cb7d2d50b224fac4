// FBP as it is written down: the exact sample density of each record, raised to its risk weight. With
// C > 0 both means have an effect of each PSU, N(T b, T) in the sample.
data {
  int<lower=1> n;
  int<lower=1> K;
  matrix[n, K] x;
  vector[n] y;
  vector[n] log_pi;
  vector<lower=0, upper=1>[n] alpha;
  real<lower=0> coefficient_sd;
  real<lower=0> selection_sd;
  real<lower=0> residual_scale;
  int<lower=0> C;
  array[n] int<lower=0, upper=C> psu;
  real<lower=0> psu_scale_prior;
  real<lower=0> lkj;
}
parameters {
  vector[K] beta;
  vector[K + 1] selection;
  vector<lower=0>[2] residual_sd;
  vector<lower=0>[C > 0 ? 2 : 0] psu_scale;
  array[C > 0 ? 1 : 0] cholesky_factor_corr[2] psu_root;
  matrix[C, 2] psu_effect;
}
model {
  real k_y = selection[1];
  vector[K] k_x = selection[2 : K + 1];
  vector[n] mean_y = x * beta;
  vector[n] mean_pi = x * k_x;
  if (C > 0) {
    mean_y += psu_effect[psu, 1];
    mean_pi += psu_effect[psu, 2];
    matrix[2, 2] covariance = quad_form_diag(multiply_lower_tri_self_transpose(psu_root[1]),
                                             psu_scale);
    for (c in 1 : C) {
      target += multi_normal_lpdf(psu_effect[c]' | covariance * [k_y, 1]', covariance);
    }
    for (j in 1 : 2) {
      target += student_t_lpdf(psu_scale[j] | 3, 0, psu_scale_prior) + log2();
    }
    target += lkj_corr_cholesky_lpdf(psu_root[1] | lkj);
  }
  vector[n] log_lik = -log(2 * pi()) - sum(log(residual_sd))
                      - 0.5 * square((log_pi - k_y * y - mean_pi) / residual_sd[2])
                      - 0.5 * square((y - mean_y) / residual_sd[1])
                      - (mean_pi + 0.5 * square(residual_sd[2]) + k_y * mean_y
                         + 0.5 * square(k_y) * square(residual_sd[1]));
  target += dot_product(alpha, log_lik);
  for (k in 1 : K) {
    target += normal_lpdf(beta[k] | 0, coefficient_sd) + normal_lpdf(selection[k] | 0, selection_sd);
  }
  target += normal_lpdf(selection[K + 1] | 0, selection_sd);
  target += cauchy_lpdf(residual_sd[1] | 0, residual_scale) + log2();
  target += cauchy_lpdf(residual_sd[2] | 0, residual_scale) + log2();
}
