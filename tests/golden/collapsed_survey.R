# Golden values for rows of levels taken together, computed by R's survey package.
#
# Run in this folder: Rscript collapsed_survey.R
# Reads the records of taylor_survey.csv. Levels a1 and a3 become one level of a recoded factor.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE, survey.adjust.domain.lonely = FALSE,
        survey.lonely.psu = "fail")
frame <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
frame$one <- 1
frame$recoded <- ifelse(frame$a %in% c("a1", "a3"), "other", frame$a)
frame$together <- as.integer(frame$recoded == "other")
population <- 1.07 * sum(frame$weight)

# Rows: levels taken together over all of b, then with each level of b.
rows <- function(design, outcome, fun) {
  inside <- subset(design, recoded == "other")
  whole <- fun(outcome, inside)
  cells <- svyby(outcome, ~b, inside, fun)
  list(estimate = c(as.numeric(coef(whole)), as.numeric(coef(cells))),
       se = c(as.numeric(SE(whole)), as.numeric(SE(cells))))
}

# Their share of the count over all of a, as a mean: over b, then with each level of b.
shares <- function(design) {
  whole <- svymean(~together, design)
  cells <- svyby(~together, ~b, design, svymean)
  list(estimate = c(as.numeric(coef(whole)), as.numeric(coef(cells))),
       se = c(as.numeric(SE(whole)), as.numeric(SE(cells))))
}

case <- function(name, ids, strata, fpc) {
  design <- svydesign(ids = reformulate(ids), strata = if (!is.null(strata)) reformulate(strata),
                      fpc = if (!is.null(fpc)) reformulate(fpc), weights = ~weight, data = frame)
  calibrated <- calibrate(design, ~1, c(`(Intercept)` = population))
  results <- function(d) list(
    count = rows(d, ~one, svytotal), total = rows(d, ~y, svytotal), mean = rows(d, ~y, svymean),
    proportion = rows(d, ~z, svymean), share = shares(d))
  list(name = name, psu = if (ids == "1") NULL else ids, strata = strata, fpc = fpc,
       lonely_psu = "fail", plain = results(design), ratio = results(calibrated))
}

cases <- list(
  case("unstratified", "1", NULL, NULL),
  case("stratified with fpc", "1", "stratum", "fpc_record"),
  case("clusters with fpc", "psu", "stratum", "fpc_psu"))
write(toJSON(list(
  r = R.version.string, survey = as.character(packageVersion("survey")),
  date = format(Sys.Date()), population = population, cases = cases),
  auto_unbox = TRUE, digits = I(16), null = "null", na = "null"), "collapsed_survey.json")
