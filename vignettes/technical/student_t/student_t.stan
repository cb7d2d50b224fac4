// Student-t regression of an outcome, and a log-normal weight given the outcome.
functions {
  // Log-likelihood of each record, outcome and weight together. Both uses below are of this one
  // function: what the risk weights multiply is what log_lik reports.
  vector record_log_lik(vector y, vector log_w, vector mean_y, real sigma, real nu,
                        vector mean_w, real tau) {
    vector[rows(y)] t = square((y - mean_y) / sigma) / nu;
    vector[rows(y)] z = square((log_w - mean_w) / tau);
    real constants = lgamma((nu + 1) / 2) - lgamma(nu / 2) - 0.5 * log(nu * pi()) - log(sigma)
                     - 0.5 * log(2 * pi()) - log(tau);
    return constants - (nu + 1) / 2 * log1p(t) - 0.5 * z;
  }
}
data {
  int<lower=1> n;
  int<lower=1> K;
  matrix[n, K] X;
  vector[n] y;
  vector[n] log_w;
  vector<lower=0, upper=1>[n] alpha; // risk weights
  real<lower=0> coefficient_sd;
  real<lower=0> residual_scale;
}
parameters {
  vector[K] beta;
  real<lower=0> sigma;
  real<lower=2> nu;
  vector[K] gamma;
  real delta;
  real<lower=0> tau;
}
model {
  // Each record's likelihood is raised to its risk weight.
  target += dot_product(alpha, record_log_lik(y, log_w, X * beta, sigma, nu,
                                              X * gamma + delta * y, tau));
  target += normal_lpdf(beta | 0, coefficient_sd);
  target += normal_lpdf(gamma | 0, coefficient_sd);
  target += normal_lpdf(delta | 0, 1);
  target += student_t_lpdf(sigma | 3, 0, residual_scale);
  target += student_t_lpdf(tau | 3, 0, residual_scale);
  target += gamma_lpdf(nu | 2, 0.1);
}
generated quantities {
  // Unweighted, one a record; confidential, and kept so.
  vector[n] log_lik = record_log_lik(y, log_w, X * beta, sigma, nu, X * gamma + delta * y, tau);
  // One synthetic dataset a draw, from parameters and X alone.
  vector[n] y_rep = to_vector(student_t_rng(nu, X * beta, sigma));
  vector[n] log_w_rep = to_vector(normal_rng(X * gamma + delta * y_rep, tau));
  vector[n] w_smooth = exp(X * gamma + delta * y_rep + square(tau) / 2);
}
