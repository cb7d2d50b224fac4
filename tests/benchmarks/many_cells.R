# svyby for the benchmark many_cells.py: Rscript many_cells.R CSV ROWS_OF_A OUT
# Means of the cells a x b x c of the first levels of a, by a design with strata and clusters.
suppressPackageStartupMessages(library(survey))
given <- commandArgs(TRUE)
frame <- read.csv(given[1], colClasses = c(a = "character", b = "character", c = "character"))
design <- svydesign(ids = ~psu, strata = ~stratum, weights = ~weight, data = frame)
wanted <- sort(unique(frame$a))[seq_len(as.integer(given[2]))]
took <- system.time(
  made <- svyby(~y, ~a + b + c, subset(design, a %in% wanted), svymean)
)[["user.self"]]
write.csv(data.frame(as.data.frame(made)[c("a", "b", "c")], y = coef(made), se = SE(made),
                     seconds = took), given[3], row.names = FALSE)
