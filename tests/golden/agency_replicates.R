# Golden values for surveysynth.estimation.replicated_sample, computed by R's survey package.
#
# Run in this folder: Rscript agency_replicates.R
# Reads the records of taylor_survey.csv (written by taylor_survey.R), gives them replicate weights as
# an agency would publish them, and writes these with the results to agency_replicates.json.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE, survey.drop.replicates = FALSE)
RNGkind("Mersenne-Twister", "Inversion", "Rejection")
set.seed(19921001)

frame <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
frame$one <- 1
part <- as.integer(sub(".*p", "", frame$psu))
frame$psu_of_two <- paste0(frame$stratum, ifelse(part == 1, "p1", "p2"))
plan <- function(ids, strata) svydesign(ids = reformulate(ids), weights = ~weight, data = frame,
  strata = if (!is.null(strata)) reformulate(strata))
columns_of <- function(ids, strata, ...) {
  made <- as.svrepdesign(plan(ids, strata), ..., compress = FALSE)
  list(columns = unclass(weights(made, "analysis")), rscales = made$rscales)
}
population <- c(`(Intercept)` = 1.05 * sum(frame$weight), bb2 = 0.5 * sum(frame$weight),
                z = 0.36 * sum(frame$weight))

results <- function(design) {
  of <- function(formula, fun, ...) {
    whole <- fun(formula, design, ...)
    cells <- svyby(formula, ~b, design, fun, ...)
    list(estimate = c(coef(whole), coef(cells)), se = c(SE(whole), SE(cells)))
  }
  list(count = of(~one, svytotal), total = of(~y, svytotal), mean = of(~y, svymean),
       proportion = of(~z, svymean))
}
case <- function(name, method, made, type, fay = NULL, rscales = NULL) {
  repweights <- made$columns
  results_of <- function(mse) {
    given <- list(data = frame, repweights = repweights, weights = ~weight, type = type,
                  combined.weights = TRUE, mse = mse)
    if (!is.null(fay)) given$rho <- fay
    if (!is.null(rscales)) given <- c(given, list(rscales = rscales, scale = 1))
    design <- do.call(svrepdesign, given)
    # Calibration to published totals: every replicate is calibrated.
    raked <- calibrate(design, ~b + z, population, calfun = "raking", epsilon = 1e-12, maxit = 200,
                       compress = FALSE)
    list(df = degf(design), plain = results(design), calibrated = results(raked))
  }
  list(name = name, method = method, fay = fay, rscales = rscales, columns = repweights,
       estimate = results_of(TRUE), mean = results_of(FALSE))
}
stratified <- columns_of("psu", "stratum", type = "JKn")
noisy <- function(r) list(columns = frame$weight * matrix(1 + runif(nrow(frame) * r, -0.4, 0.4),
                                                          ncol = r))
cases <- list(
  case("brr", "brr", columns_of("psu_of_two", "stratum", type = "BRR"), "BRR"),
  case("fay", "fay", columns_of("psu_of_two", "stratum", type = "Fay", fay.rho = 0.3), "Fay",
       fay = 0.3),
  case("jk1", "jk1", columns_of("psu", NULL, type = "JK1"), "JK1"),
  case("jkn", "jkn", stratified, "JKn", rscales = stratified$rscales),
  case("successive differences", "successive_difference", noisy(12), "successive-difference"),
  case("bootstrap", "bootstrap", noisy(9), "bootstrap"))
write(toJSON(list(population = as.list(population), cases = cases), auto_unbox = TRUE,
             digits = NA, null = "null", na = "null"), "agency_replicates.json")
