// FBP: population model y ~ N(x beta, s_y^2), log pi | y ~ N(k_y y + x k_x, s_pi^2), with the exact
// likelihood of a sample selected with probability in proportion to pi, each record raised to its
// risk weight alpha_i. The data enter through weighted sufficient statistics only. With PSUs (C > 0)
// the means of y and of log pi given y have an effect of each besides.
functions {
#include functions/outcome_squares.stan
#include functions/conditional_squares.stan
#include functions/normal_squares.stan
#include functions/half_student_t.stan
#include functions/column_squares.stan
#include functions/psu_effects.stan
#include functions/psu_tilt.stan
}
data {
  int<lower=1> K; // columns of X
  int<lower=0, upper=K> K_shrunken; // the last of them, of interactions with a ridge
  real<lower=0> total; // sum of alpha
  vector[K] x_sum; // X'alpha
  matrix[K, K] gram; // X'AX, A = diag(alpha), with the ridge, as fit and residual
  matrix[K, 2] fit; // a solution b of X'AX b = X'AZ, Z = (y, log pi)
  matrix[2, 2] residual; // (Z - X fit)'A(Z - X fit)
  int<lower=0> C; // PSUs with effects
  vector<lower=0>[C] psu_total; // sums by PSU of alpha,
  matrix[C, K] psu_x_sum; // of alpha x
  matrix[C, 2] psu_residual; // and of alpha (z - x fit)
  real<lower=0> coefficient_sd; // prior SD of beta
  real<lower=0> selection_sd; // prior SD of k_y and k_x
  real<lower=0> residual_scale; // scale of the half-Cauchy priors
  real<lower=0> psu_scale_prior; // scale of the half-t priors
  real<lower=0> lkj;
}
transformed data {
  int L = K - K_shrunken;
  real count = total + K_shrunken; // a column with a ridge is one more record of squares
}
parameters {
  vector[K] beta;
  vector[K + 1] selection; // k_y, then k_x
  vector<lower=0>[2] residual_sd; // s_y, s_pi
  vector<lower=0>[C > 0 ? 2 : 0] psu_scale;
  array[C > 0 ? 1 : 0] cholesky_factor_corr[2] psu_root;
  matrix[C, 2] psu_effect;
}
model {
  real k_y = selection[1];
  vector[K] k_x = selection[2 : K + 1];
  real squares_y = outcome_squares(beta, gram, fit, residual);
  real squares_pi = conditional_squares(k_y, k_x, gram, fit, residual);
  if (C > 0) {
    // Sums by PSU of alpha (y - x beta) and of alpha (log pi - k_y y - x k_x).
    vector[C] sum_y = psu_residual[, 1] - psu_x_sum * (beta - fit[, 1]);
    vector[C] sum_pi = psu_residual[, 2] - k_y * psu_residual[, 1]
                       - psu_x_sum * (k_x - fit[, 2] + k_y * fit[, 1]);
    squares_y += column_squares(psu_effect[, 1], sum_y, psu_total);
    squares_pi += column_squares(psu_effect[, 2], sum_pi, psu_total);
    // E(pi | x) is that of a PSU: minus the sum of alpha times log exp(a_2 + k_y a_1).
    target += -dot_product(psu_total, psu_effect[, 2] + k_y * psu_effect[, 1]);
    // The effects of sampled PSUs are tilted by exp(k_y a_1 + a_2).
    target += psu_effects_lpdf(psu_effect | psu_scale, psu_root[1])
              + psu_tilt(psu_effect, [k_y, 1]', diag_pre_multiply(psu_scale, psu_root[1]));
    target += half_student_t_lpdf(psu_scale | 3, psu_scale_prior);
    target += lkj_corr_cholesky_lpdf(psu_root[1] | lkj);
  }
  target += normal_squares(squares_y, count, residual_sd[1]);
  target += normal_squares(squares_pi, count, residual_sd[2]);
  // Minus the sum of alpha log E(pi | x): the selection.
  target += -dot_product(x_sum, k_x + k_y * beta)
            - 0.5 * total * (square(residual_sd[2]) + square(k_y * residual_sd[1]));
  target += normal_lpdf(beta[1 : L] | 0, coefficient_sd);
  target += normal_lpdf(selection[1 : L + 1] | 0, selection_sd);
  target += cauchy_lpdf(residual_sd | 0, residual_scale) + 2 * log2();
}
