// The general location model as a chain: multinomial logits of the discrete parts, regressions of
// the amounts and of the log weight, with slopes on the residuals of earlier columns; slopes and
// variances may differ by group; each record raised to its risk weight. The data are weighted
// counts, and rows that have the weighted moments of the records of each group. Rows of the prior
// have the scale and the slopes that groups share. Arrays of all parts stand end to end, rows first.
// With PSUs (C > 0) every predictor of a logit and every mean also has an effect of the PSU, and rows
// are by PSU.
functions {
#include functions/half_student_t.stan
#include functions/psu_effects.stan
  int products(array[] int a, array[] int b) {
    int total = 0;
    for (i in 1 : size(a)) total += a[i] * b[i];
    return total;
  }
  // A matrix of r rows and c columns that starts after element "first".
  matrix rows_from(vector flat, int first, int r, int c) {
    return to_matrix(segment(flat, first + 1, r * c), r, c, 0);
  }
}
data {
  int<lower=0> L; // logits
  array[L] int<lower=1> logit_outcome; // position of the outcome
  array[L] int<lower=1> P; // columns
  array[L] int<lower=1> Q; // categories but the first
  array[L] int<lower=1> T; // distinct rows
  array[products(T, P)] real x; // distinct rows of each
  array[products(T, Q) + sum(T)] real<lower=0> counts; // sums of alpha by row and category
  int<lower=0> J; // regressions
  array[J] int regression_outcome; // zero: the log weight; negative: below a split
  int<lower=1> G; // groups
  int<lower=0, upper=1> grouped;
  int<lower=1> W; // columns of (x, indicators of categories)
  array[J, W] int<lower=0, upper=1> uses; // those of each regression
  array[J, J] int<lower=0, upper=1> before; // earlier columns of z of each regression
  array[W] int<lower=0, upper=1> ridged; // columns of shrunken interactions: without tau
  int<lower=0> M; // rows, group by group
  array[M] int<lower=1, upper=G> group;
  matrix[M, W] rows_x;
  matrix[M, J] rows_z; // zero where absent
  matrix<lower=0, upper=1>[M, J] present;
  array[J, G] real<lower=0> total; // sums of alpha
  int<lower=0> R; // rows of the prior
  matrix[R, W] prior_x;
  matrix[R, J] prior_z;
  matrix<lower=0, upper=1>[R, J] prior_present;
  array[J] real<lower=0> prior_count; // records that they are
  real<lower=0> least_df; // lower end of nu
  int<lower=0> C; // PSUs with effects
  array[sum(T)] int<lower=0, upper=C> logit_psu; // PSU of each row of a logit, zero for none
  array[M] int<lower=0, upper=C> row_psu; // PSU of each row of the regressions, zero for none
  vector<lower=0>[M] row_root; // root of the weight of such a row
  real<lower=0> psu_scale_prior;
  real<lower=0> lkj;
  real<lower=0> logit_sd; // scales of the priors
  real<lower=0> coefficient_scale;
  real<lower=0> residual_scale;
  real<lower=0> slope_scale;
  real<lower=0> pooling_df;
  real<lower=0> interaction_scale;
}
transformed data {
  real df = 3;
  int with_slopes = 0;
  int E = sum(Q) + J; // effects of a PSU: categories of each logit, columns of z
  array[J] int width; // columns of each regression
  array[J] int D; // of which the last, slopes on earlier z, differ by group
  for (j in 1 : J) {
    width[j] = sum(uses[j]) + sum(before[j]);
    D[j] = grouped ? sum(before[j]) : 0;
    with_slopes += D[j] > 0;
  }
}
parameters {
  vector[products(P, Q)] logit_b;
  vector[sum(width)] core;
  vector<lower=0>[J] tau;
  matrix<lower=0>[G, J] sd;
  vector<lower=0>[grouped * J] s_0;
  vector<lower=least_df>[grouped * J] nu;
  vector[G * sum(D)] slopes;
  vector<lower=0>[with_slopes] t;
  vector<lower=0>[C > 0 ? E : 0] psu_scale;
  array[C > 0 ? 1 : 0] cholesky_factor_corr[E] psu_root;
  matrix[C, E] psu_effect;
}
model {
  int first = 0;
  int first_row = 0;
  int first_effect = 0;
  int first_x = 0;
  int first_count = 0;
  for (l in 1 : L) {
    matrix[T[l], P[l]] z = rows_from(to_vector(x), first_x, T[l], P[l]);
    matrix[T[l], Q[l] + 1] n = rows_from(to_vector(counts), first_count, T[l], Q[l] + 1);
    matrix[P[l], Q[l]] b = rows_from(logit_b, first, P[l], Q[l]);
    matrix[T[l], Q[l]] eta = z * b;
    for (i in 1 : T[l]) {
      int psu = logit_psu[first_row + i];
      if (psu > 0) eta[i] += psu_effect[psu, (first_effect + 1) : (first_effect + Q[l])];
    }
    for (i in 1 : T[l]) {
      row_vector[Q[l] + 1] of_row = append_col(0, eta[i]);
      target += dot_product(n[i], of_row - log_sum_exp(of_row));
    }
    for (i in 1 : P[l]) {
      target += normal_lpdf(b[i] | 0, ridged[i] ? 2 * interaction_scale : logit_sd);
    }
    first += P[l] * Q[l];
    first_row += T[l];
    first_effect += Q[l];
    first_x += T[l] * P[l];
    first_count += T[l] * (Q[l] + 1);
  }

  int at = 0;
  int at_slope = 0;
  int k = 0;
  matrix[M, J] residual; // about the means
  matrix[R, J] prior_residual;
  for (j in 1 : J) {
    vector[width[j]] b = segment(core, at + 1, width[j]);
    vector[M] fitted = rep_vector(0, M);
    vector[R] prior_fitted = rep_vector(0, R);
    for (i in 1 : M) {
      if (row_psu[i] > 0) fitted[i] = row_root[i] * psu_effect[row_psu[i], first_effect + j];
    }
    int used = 0;
    int slope = 0;
    for (l in 1 : W) {
      if (uses[j, l]) {
        used += 1;
        fitted += col(rows_x, l) * b[used];
        prior_fitted += col(prior_x, l) * b[used];
        if (!ridged[l]) target += normal_lpdf(b[used] | 0, tau[j]);
      }
    }
    residual[, j] = col(present, j) .* (col(rows_z, j) - fitted);
    vector[M] rest = col(residual, j);
    prior_residual[, j] = col(prior_present, j) .* (col(prior_z, j) - prior_fitted);
    vector[R] prior_rest = col(prior_residual, j);
    for (l in 1 : J) {
      if (before[j, l]) {
        slope += 1;
        vector[G] f = rep_vector(b[used + slope], G);
        if (grouped) for (g in 1 : G) f[g] += slopes[at_slope + (g - 1) * D[j] + slope];
        rest -= col(present, j) .* col(residual, l) .* f[group];
        prior_rest -= col(prior_present, j) .* col(prior_residual, l) * b[used + slope];
        target += normal_lpdf(b[used + slope] | 0, tau[j]);
      }
    }
    real common = grouped ? s_0[j] : sd[1, j];
    target += -0.5 * dot_self(prior_rest / common)
              - prior_count[j] * (0.5 * log(2 * pi()) + log(common))
              - sum(ridged) * log(interaction_scale);
    if (D[j] > 0) {
      k += 1;
      target += normal_lpdf(segment(slopes, at_slope + 1, G * D[j]) | 0, t[k]);
      at_slope += G * D[j];
    }
    target += -0.5 * sum(square(rest ./ sd[group, j]));
    for (g in 1 : G) target += -total[j, g] * (0.5 * log(2 * pi()) + log(sd[g, j]));
    if (grouped) {
      // A density of the variance, and the Jacobian of the square.
      target += scaled_inv_chi_square_lpdf(square(col(sd, j)) | nu[j], s_0[j])
                + sum(log(2 * col(sd, j)));
    } else {
      target += half_student_t_lpdf(col(sd, j) | df, residual_scale);
    }
    at += width[j];
  }
  target += half_student_t_lpdf(tau | df, coefficient_scale);
  target += half_student_t_lpdf(t | df, slope_scale);
  target += half_student_t_lpdf(s_0 | df, residual_scale);
  target += half_student_t_lpdf(nu | 1, pooling_df);
  if (C > 0) {
    target += psu_effects_lpdf(psu_effect | psu_scale, psu_root[1]);
    target += half_student_t_lpdf(psu_scale | df, psu_scale_prior);
    target += lkj_corr_cholesky_lpdf(psu_root[1] | lkj);
  }
}
generated quantities {
  // Which parts there are: outcome and sizes, for whoever reads the draws.
  array[L, 3] int logit_parts;
  array[J, 3] int regression_parts;
  for (l in 1 : L) logit_parts[l] = {logit_outcome[l], P[l], Q[l]};
  for (j in 1 : J) regression_parts[j] = {regression_outcome[j], width[j], D[j]};
}
