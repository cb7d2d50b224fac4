// FBP as it is written down: the exact sample density of each record, raised to its risk weight.
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
}
parameters {
  vector[K] beta;
  vector[K + 1] selection;
  vector<lower=0>[2] residual_sd;
}
model {
  real k_y = selection[1];
  vector[K] k_x = selection[2 : K + 1];
  vector[n] mean_y = x * beta;
  vector[n] mean_pi = x * k_x;
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
