# Golden values for surveysynth.estimation.calibration, computed by R's survey package.
#
# Run in this folder: Rscript calibration_survey.R
# Reads the simulated records of taylor_survey.csv, and takes real ones from R (California's schools);
# writes these to calibration_schools.csv and the results to calibration_survey.json.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE, survey.adjust.domain.lonely = FALSE)
data(api)

simulated <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
schools <- rbind(
  data.frame(sample = "strat", district = as.character(apistrat$dnum), apistrat[c(
    "stype", "sch.wide", "awards", "api99", "api00", "enroll", "pw", "fpc")]),
  data.frame(sample = "clus1", district = as.character(apiclus1$dnum), apiclus1[c(
    "stype", "sch.wide", "awards", "api99", "api00", "enroll", "pw", "fpc")]))
write.csv(schools, "calibration_schools.csv", row.names = FALSE, quote = FALSE)
schools <- read.csv("calibration_schools.csv", colClasses = c(district = "character"))

estimates <- function(design, by, y, z) {
  design <- update(design, one = 1)
  of <- function(formula, fun, ...) {
    whole <- fun(formula, design = design, ...)
    cells <- svyby(formula, reformulate(by), design = design, FUN = fun, ...)
    list(key = c("All", as.character(cells[[by]])),
         estimate = c(as.numeric(coef(whole)), as.numeric(coef(cells))),
         se = c(as.numeric(SE(whole)), as.numeric(SE(cells))))
  }
  list(count = of(~one, svytotal), total = of(reformulate(y), svytotal),
       mean = of(reformulate(y), svymean),
       ratio = of(reformulate(y), svyratio, denominator = reformulate(z)))
}
weights_of <- function(design) as.numeric(weights(design))
Inf_as_text <- function(bounds) ifelse(is.finite(bounds), bounds, NA)

## One design, its margins, and every way to calibrate to them.
case <- function(name, design, margins, by, y, z, bounds, amount = NULL, rakes = FALSE) {
  pieces <- lapply(names(margins), function(m) {
    frame <- data.frame(names(margins[[m]]), as.numeric(margins[[m]]))
    setNames(frame, c(m, "Freq"))
  })
  formula <- reformulate(c(names(margins), amount$name))
  x <- colnames(model.matrix(formula, design$variables))
  population <- setNames(numeric(length(x)), x)
  population["(Intercept)"] <- sum(margins[[1]])
  for (m in names(margins)) for (level in names(margins[[m]]))
    if (paste0(m, level) %in% x) population[paste0(m, level)] <- margins[[m]][[level]]
  if (!is.null(amount)) population[amount$name] <- amount$total
  ways <- list()
  add <- function(method, bounds, made, se = TRUE) {
    ways[[length(ways) + 1]] <<- list(method = method, bounds = Inf_as_text(bounds), se = se,
      weight = weights_of(made), estimates = estimates(made, by, y, z))
  }
  calibrated <- function(method, bounds)
    calibrate(design, formula, population, calfun = method, bounds = bounds, epsilon = 1e-12,
              maxit = 500)
  free <- c(-Inf, Inf)
  add("linear", free, calibrated("linear", free))
  add("raking", free, calibrated("raking", free))
  for (method in names(bounds)) add(method, bounds[[method]], calibrated(method, bounds[[method]]))
  # rake regresses with equal weights, not the base weights: another SE unless these are equal.
  if (rakes) add("raking", free, rake(design, lapply(names(margins), reformulate), pieces,
    control = list(maxit = 1000, epsilon = 1e-13)), se = diff(range(weights(design))) < 1e-9)
  if (length(margins) == 1 && is.null(amount))
    add("raking", free, postStratify(design, reformulate(names(margins)), pieces[[1]]))
  list(name = name, margins = lapply(margins, as.list), by = by, y = y, z = z,
       amount = amount, ways = ways)
}

# Totals a little off what the sample has, so that ratios lie between 0.7 and 1.4.
sizes <- function(column, by) round(tapply(simulated$weight, simulated[[column]], sum) * by, 3)
of_both <- list(b = sizes("b", c(1.15, 0.9)), c = sizes("c", c(0.95, 1.1)))
of_both$c[["c1"]] <- of_both$c[["c1"]] + sum(of_both$b) - sum(of_both$c)
of_b <- of_both["b"]
plan <- function(ids, strata, fpc, lonely = "fail") {
  options(survey.lonely.psu = lonely)
  svydesign(ids = reformulate(ids), strata = reformulate(strata), weights = ~weight,
            fpc = if (!is.null(fpc)) reformulate(fpc), data = simulated)
}
records <- plan("1", "stratum", NULL)
wide <- list()
hit <- list(linear = c(0.8, 1.3), raking = c(0.8, 1.3))
equal <- simulated; equal$weight <- 40
strat <- subset(schools, sample == "strat"); clus <- subset(schools, sample == "clus1")
state <- list(stype = c(E = 4421, H = 755, M = 1018))
wider <- c(state, list(sch.wide = c(No = 1072, Yes = 5122)))
results <- list(
  case("records", records, of_b, "a", "y", "z", wide),
  case("records, two margins", records, of_both, "a", "y", "z", wide, rakes = TRUE),
  case("records, an amount", records, of_b, "a", "z", "y", hit, list(name = "y",
       total = 1.07 * sum(with(simulated, weight * y)))),
  case("clusters", plan("psu", "stratum", "fpc_psu"), of_both, "b", "y", "z", wide),
  case("lonely", plan("psu", "stratum_lonely_psu", NULL, "adjust"), of_both, "a", "y", "z", wide),
  {options(survey.lonely.psu = "fail")
   case("equal weights", svydesign(ids = ~psu, strata = ~stratum, weights = ~weight, data = equal),
        lapply(of_both, function(t) t * 40 * nrow(equal) / sum(t)), "a", "y", "z", list(),
        rakes = TRUE)},
  case("strat", svydesign(ids = ~1, strata = ~stype, weights = ~pw, fpc = ~fpc, data = strat),
       wider, "awards", "api00", "enroll", list(raking = c(0.6, 1.4)),
       list(name = "api99", total = 3914069)),
  case("clus1", svydesign(ids = ~district, weights = ~pw, fpc = ~fpc, data = clus), state,
       "awards", "api00", "enroll", list(linear = c(0.65, 1.7), raking = c(0.65, 1.7)),
       list(name = "api99", total = 3914069)))
write(toJSON(results, digits = NA, auto_unbox = TRUE, na = "null"), "calibration_survey.json")
