# Golden values for quantiles, ratios, contrasts of rows and shares of rows, computed by R's survey
# package.
#
# Run in this folder: Rscript statistics_survey.R
# Takes the records of taylor_survey.csv, with a second amount x = sqrt(y) weight. Everything is
# estimated from designs as svydesign makes them and from the same after calibrate(~1, N), with the
# degrees of freedom of the whole design where an interval is made. Writes statistics_survey.json:
# by statistic, the rows in the order of build_domains, the columns of estimates and errors.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE, survey.adjust.domain.lonely = FALSE,
        survey.lonely.psu = "fail")

frame <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
frame$x <- sqrt(frame$y) * frame$weight
bounds <- c(45000, 75000)
frame$k <- 1 + (frame$y >= bounds[1]) + (frame$y >= bounds[2])
population <- 1.07 * sum(frame$weight)
levels_of <- list(a = paste0("a", 1:4), b = c("b1", "b2"))
rows <- expand.grid(b = c("All", levels_of$b), a = c("All", levels_of$a),
                    stringsAsFactors = FALSE)[, c("a", "b")]
in_row <- function(row) (row$a == "All" | frame$a == row$a) & (row$b == "All" | frame$b == row$b)
each_row <- function(f, least = 2) {
  found <- lapply(seq_len(nrow(rows)), function(i) {
    inside <- in_row(rows[i, ])
    if (sum(inside) < least) NULL else f(inside, rows[i, ])
  })
  names_of <- names(Filter(Negate(is.null), found)[[1]])
  sapply(names_of, function(name) unname(sapply(found, function(one)
    if (is.null(one)) NA_real_ else one[[name]])), simplify = FALSE)
}

## Quantiles with Woodruff's interval.
quantiles <- function(design, p, df) each_row(function(inside, row) {
  found <- svyquantile(~y, subset(design, inside), p, interval.type = "mean", qrule = "math",
                       df = df)$y
  list(estimate = found[1, "quantile"], lower = found[1, 2], upper = found[1, 3],
       se = found[1, "se"])
})

## Ratios of two amounts.
ratios <- function(design) each_row(function(inside, row) {
  found <- svyratio(~y, ~x, subset(design, inside))
  list(estimate = as.numeric(coef(found)), se = as.numeric(SE(found)))
})

## Contrasts of two rows: one call of svytotal, so that the covariance of the rows is in it.
totals_of <- function(design, first, second) {
  design <- update(design, n_1 = as.numeric(first), y_1 = y * first, x_1 = x * first,
                   n_2 = as.numeric(second), y_2 = y * second, x_2 = x * second)
  svytotal(~n_1 + y_1 + x_1 + n_2 + y_2 + x_2, design)
}
contrast <- function(design, expression, rule) each_row(function(inside, row) {
  pair <- rule(row)
  if (is.null(pair)) return(list(estimate = NA_real_, se = NA_real_))
  first <- in_row(pair[[1]]); second <- in_row(pair[[2]])
  if (min(sum(first), sum(second)) < 2) return(list(estimate = NA_real_, se = NA_real_))
  found <- svycontrast(totals_of(design, first, second), expression)
  list(estimate = as.numeric(coef(found)), se = as.numeric(SE(found)))
})
with_level <- function(row, column, level) { row[[column]] <- level; row }
two_levels <- function(column, one, other) function(row)
  if (row[[column]] == one) list(row, with_level(row, column, other))
to_margin <- function(column) function(row)
  if (row[[column]] != "All") list(row, with_level(row, column, "All"))
contrasts <- function(design) list(
  "difference(mean, a: a1 - a2)" =
    contrast(design, quote(y_1 / n_1 - y_2 / n_2), two_levels("a", "a1", "a2")),
  "difference(mean, a: each - a3)" = contrast(design, quote(y_1 / n_1 - y_2 / n_2), function(row)
    if (!row$a %in% c("All", "a3")) list(row, with_level(row, "a", "a3"))),
  "difference(mean, b: margin)" = contrast(design, quote(y_1 / n_1 - y_2 / n_2), to_margin("b")),
  "difference(total, b: b1 - b2)" = contrast(design, quote(y_1 - y_2), two_levels("b", "b1", "b2")),
  "difference(total, a: margin)" = contrast(design, quote(y_1 - y_2), to_margin("a")),
  "difference(ratio(y, x), b: b1 - b2)" =
    contrast(design, quote(y_1 / x_1 - y_2 / x_2), two_levels("b", "b1", "b2")),
  "ratio(mean, a: a1 / a2)" =
    contrast(design, quote((y_1 / n_1) / (y_2 / n_2)), two_levels("a", "a1", "a2")),
  "ratio(total, b: margin)" = contrast(design, quote(y_1 / y_2), to_margin("b")),
  "ratio(count, a: margin)" = contrast(design, quote(n_1 / n_2), to_margin("a")),
  "ratio(count, a: a1 / a2)" = contrast(design, quote(n_1 / n_2), two_levels("a", "a1", "a2")))

## The same difference by the way of svyby and its covariances, which calibrated designs do not have.
by_svyby <- function(design) {
  means <- svyby(~y, ~a + b, design, svymean, covmat = TRUE)
  found <- svycontrast(means, c(a1.b1 = 1, a2.b1 = -1))
  list(estimate = as.numeric(coef(found)), se = as.numeric(SE(found)))
}

## Shares over rows: among the records of a level, the share of each row in its margin.
shares <- function(design, column, level, df) each_row(function(inside, row) {
  if (row[[column]] == "All") return(list(estimate = NA, se = NA, lower = NA, upper = NA))
  among <- in_row(with_level(row, column, "All")) & frame$k == level
  value <- row[[column]]
  one <- suppressWarnings(eval(bquote(svyciprop(
    ~I(.(as.name(column)) == .(value)), subset(design, among), method = "xlogit", df = .(df)))))
  ends <- as.vector(attr(one, "ci"))
  list(estimate = as.numeric(one), se = as.numeric(SE(one)), lower = ends[1], upper = ends[2])
})

## Korn and Graubard's interval, as R has it, and the Wald interval of a logistic regression.
proportions <- function(design, df) each_row(function(inside, row) {
  domain <- subset(design, inside)
  if (length(unique(frame$z[inside])) < 2)
    return(list(estimate = NA, se = NA, n = NA, df = NA, beta_lower = NA, beta_upper = NA,
                logit_lower = NA, logit_upper = NA))
  beta <- svyciprop(~z, domain, method = "beta")
  logit <- svyciprop(~z, domain, method = "logit", df = df)
  list(estimate = as.numeric(beta), se = as.numeric(SE(beta)), n = sum(inside), df = degf(domain),
       beta_lower = attr(beta, "ci")[[1]], beta_upper = attr(beta, "ci")[[2]],
       logit_lower = attr(logit, "ci")[[1]], logit_upper = attr(logit, "ci")[[2]])
})

results <- function(design, df) list(
  "median" = quantiles(design, 0.5, df), "quantile(0.25)" = quantiles(design, 0.25, df),
  "quantile(0.9)" = quantiles(design, 0.9, df), "ratio(y, x)" = ratios(design),
  contrasts = contrasts(design), svyby = if (is.null(design$postStrata)) by_svyby(design),
  shares = lapply(1:3, function(level) list(a = shares(design, "a", level, df),
                                            b = shares(design, "b", level, df))),
  proportions = proportions(design, df))

case <- function(name, ids, strata, fpc) {
  design <- svydesign(ids = reformulate(ids), strata = if (!is.null(strata)) reformulate(strata),
                      fpc = if (!is.null(fpc)) reformulate(fpc), weights = ~weight, data = frame)
  df <- degf(design)
  calibrated <- calibrate(design, ~1, c(`(Intercept)` = population))
  list(name = name, psu = if (ids == "1") NULL else ids, strata = strata, fpc = fpc, df = df,
       lonely_psu = "fail", plain = results(design, df), ratio = results(calibrated, df))
}
cases <- list(
  case("unstratified", "1", NULL, NULL),
  case("stratified with fpc", "1", "stratum", "fpc_record"),
  case("clusters", "psu", "stratum", NULL),
  case("clusters with fpc", "psu", "stratum", "fpc_psu"))
write(toJSON(list(
  r = R.version.string, survey = as.character(packageVersion("survey")),
  date = format(Sys.Date()), population = population, bounds = bounds, cases = cases),
  auto_unbox = TRUE, digits = I(16), null = "null", na = "null"), "statistics_survey.json")
