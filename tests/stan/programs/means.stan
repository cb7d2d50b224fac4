// Means of the transformed outcome and of the log weight, unit variances.
data {
  int<lower=1> n;
  vector[n] y;
  vector[n] log_w;
  vector<lower=0, upper=1>[n] alpha;
  real<lower=0> prior_sd;
}
parameters {
  vector[2] mu;
}
transformed parameters {
  matrix[2, 3] layout; // tells the order in which elements are written
  for (i in 1:2) {
    for (j in 1:3) {
      layout[i, j] = mu[1] + 10 * i + j;
    }
  }
}
model {
  for (i in 1:n) {
    target += alpha[i] * (normal_lpdf(y[i] | mu[1], 1) + normal_lpdf(log_w[i] | mu[2], 1));
  }
  target += normal_lpdf(mu | 0, prior_sd);
}
generated quantities {
  vector[n] log_lik;
  vector[n] y_rep;
  vector[n] log_w_rep;
  for (i in 1:n) {
    log_lik[i] = normal_lpdf(y[i] | mu[1], 1) + normal_lpdf(log_w[i] | mu[2], 1);
    y_rep[i] = normal_rng(mu[1], 1);
    log_w_rep[i] = normal_rng(mu[2], 1);
  }
}
