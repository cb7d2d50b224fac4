# Golden values for samples with public weights, computed by R's survey package.
#
# Run in this folder: Rscript public_weights.R
# The design is that of the package's own example apistrat: three strata by type of school with
# 4421, 755 and 1018 units of which 100, 50 and 50 were drawn, public weights and a finite
# population correction. The values are simulated (means and SDs about as published for such
# schools); nothing of the real data is here. Records are rounded, written to public_weights.csv,
# and read back, so that both languages see the same doubles. Results go to public_weights.json.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
RNGkind("Mersenne-Twister", "Inversion", "Rejection")
set.seed(19991012)

size <- c(E = 4421, H = 755, M = 1018)
drawn <- c(E = 100, H = 50, M = 50)
mean_of <- c(E = 674, H = 626, M = 637)
sd_of <- c(E = 120, H = 100, M = 115)
stype <- sample(rep(names(drawn), drawn))
n <- length(stype)
awards <- ifelse(runif(n) < c(E = 0.7, H = 0.3, M = 0.5)[stype], "Yes", "No")
score <- round(mean_of[stype] + ifelse(awards == "Yes", 15, -15) + sd_of[stype] * rnorm(n))
enroll <- round(exp(log(c(E = 400, H = 1200, M = 800)[stype]) + 0.4 * rnorm(n)))
frame <- data.frame(stype, awards, score, enroll, pw = (size / drawn)[stype], fpc = size[stype])
# Weights after an adjustment for nonresponse, say: they vary within strata, with the score.
adjusted <- frame$pw * exp(0.4 * rnorm(n) + 0.002 * (frame$score - 650))
frame$adjusted <- round(adjusted, 3)
write.csv(frame, "public_weights.csv", row.names = FALSE, quote = FALSE)
frame <- read.csv("public_weights.csv")

# Rows in the order of the tables: each variable's margin first, the last runs fastest.
rows <- expand.grid(awards = c("All", "No", "Yes"), stype = c("All", "E", "H", "M"),
                    stringsAsFactors = FALSE)[, 2:1]
frame$one <- 1

value <- function(design, row, outcome, fun) {
  inside <- (row$stype == "All" | frame$stype == row$stype) &
    (row$awards == "All" | frame$awards == row$awards)
  result <- fun(as.formula(paste("~", outcome)), subset(design, inside))
  c(as.vector(coef(result)), as.vector(SE(result)))
}

tables <- function(design) {
  of <- function(outcome, fun) {
    found <- sapply(seq_len(nrow(rows)), function(i) value(design, rows[i, ], outcome, fun))
    list(estimate = found[1, ], se = found[2, ])
  }
  list(count = of("one", svytotal),
       total_score = of("score", svytotal), mean_score = of("score", svymean),
       total_enroll = of("enroll", svytotal), mean_enroll = of("enroll", svymean))
}

design <- svydesign(ids = ~1, strata = ~stype, weights = ~pw, fpc = ~fpc, data = frame)
varying <- svydesign(ids = ~1, strata = ~stype, weights = ~adjusted, fpc = ~fpc, data = frame)
# The same by svyby, which is how a user would ask for a row.
by <- svyby(~score, ~stype, design, svymean)
result <- list(
  R = R.version.string, survey = as.character(packageVersion("survey")),
  sizes = as.list(size), rows = rows, df = degf(design),
  strata = tables(design), adjusted = tables(varying),
  svyby = list(stype = by$stype, estimate = by$score, se = as.vector(SE(by)))
)
write_json(result, "public_weights.json", digits = NA, auto_unbox = TRUE, pretty = TRUE)
