// FBP: population model y ~ N(x beta, s_y^2), log pi | y ~ N(k_y y + x k_x, s_pi^2), with the exact
// likelihood of a sample selected with probability in proportion to pi, each record raised to its
// risk weight alpha_i. The data enter through weighted sufficient statistics only.
functions {
#include functions/outcome_squares.stan
#include functions/conditional_squares.stan
#include functions/normal_squares.stan
#include functions/half_student_t.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=0, upper=K> K_shrunken; // the last of them, of interactions with a ridge
  real<lower=0> total; // sum of alpha
  vector[K] x_sum; // X'alpha
  matrix[K, K] gram; // X'AX, A = diag(alpha), with the ridge, as fit and residual
  matrix[K, 2] fit; // a solution b of X'AX b = X'AZ, Z = (y, log pi)
  matrix[2, 2] residual; // (Z - X fit)'A(Z - X fit)
  real<lower=0> coefficient_sd; // prior SD of beta
  real<lower=0> selection_sd; // prior SD of k_y and k_x
  real<lower=0> residual_scale; // scale of the half-Cauchy priors
}
transformed data {
  int L = K - K_shrunken;
  real count = total + K_shrunken; // a column with a ridge is one more record of squares
}
parameters {
  vector[K] beta;
  vector[K + 1] selection; // k_y, then k_x
  vector<lower=0>[2] residual_sd; // s_y, s_pi
}
model {
  real k_y = selection[1];
  vector[K] k_x = selection[2 : K + 1];
  real squares_y = outcome_squares(beta, gram, fit, residual);
  real squares_pi = conditional_squares(k_y, k_x, gram, fit, residual);
  target += normal_squares(squares_y, count, residual_sd[1]);
  target += normal_squares(squares_pi, count, residual_sd[2]);
  // Minus the sum of alpha log E(pi | x): the selection.
  target += -dot_product(x_sum, k_x + k_y * beta)
            - 0.5 * total * (square(residual_sd[2]) + square(k_y * residual_sd[1]));
  target += normal_lpdf(beta[1 : L] | 0, coefficient_sd);
  target += normal_lpdf(selection[1 : L + 1] | 0, selection_sd);
  target += cauchy_lpdf(residual_sd | 0, residual_scale) + 2 * log2();
}
