// A normal location with unit variance: small enough to know its posterior.
data {
  int<lower=0> n;
  vector[n] y;
  vector<lower=0, upper=1>[n] alpha;
}
parameters {
  real mu;
}
transformed parameters {
  matrix[2, 3] layout;
  for (i in 1:2) {
    for (j in 1:3) {
      layout[i, j] = mu + 10 * i + j;
    }
  }
}
model {
  for (i in 1:n) {
    target += alpha[i] * normal_lpdf(y[i] | mu, 1);
  }
  target += normal_lpdf(mu | 0, 10);
}
generated quantities {
  vector[n] log_lik;
  for (i in 1:n) {
    log_lik[i] = normal_lpdf(y[i] | mu, 1);
  }
}
