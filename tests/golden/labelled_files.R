# A small survey as files of Stata, SPSS and SAS, written by R's haven (ReadStat's R side, with its
# own code for labels and tagged missing values), and as csv what they hold: blank where missing.
#   Rscript tests/golden/labelled_files.R      in the root of the repository
library(haven)

n <- 90
i <- seq_len(n)
region <- (i %% 3) + 1
size <- (i %% 4) + 1
sex <- ifelse(i %% 2 == 0, "F", "M")
tenure <- ifelse(i %% 5 == 0, 2, 1)
salary <- 20000 + 137 * i + 0.25
weight <- 10 + (i * 7) %% 13 + 0.5
day <- as.Date("2024-01-31") + i %% 7

# Refused (-9), not asked (-8) and system-missing values; of salary one each.
tenure_code <- tenure
tenure_code[c(11, 22)] <- -9
tenure_code[33] <- -8
tenure_code[44] <- NA
salary_code <- salary
salary_code[5] <- -9
salary_code[6] <- NA

regions <- c("Nord & S\u00fcd" = 1, "West" = 2, "East" = 3, "Abroad" = 4)
sizes <- c("4 or more" = 4)
tenures <- c(Owner = 1, Tenant = 2)
missing_codes <- c(Refused = -9, "Not asked" = -8)

spss <- data.frame(
  region = labelled(region, regions, "Region of residence"),
  size = labelled(size, sizes, "Household size"),
  sex = labelled(sex, c(Female = "F", Male = "M"), "Sex"),
  tenure = labelled_spss(tenure_code, c(tenures, missing_codes), na_range = c(-9, -8),
                         label = "Tenure"),
  salary = labelled_spss(salary_code, c(Refused = -9), na_values = -9, label = "Annual salary"),
  weight = weight,
  day = day
)
write_sav(spss, "tests/golden/labelled_files.sav")

tagged <- function(values, tags = c("a", "b")) {
  ifelse(values %in% -9, tagged_na(tags[1]), ifelse(values %in% -8, tagged_na(tags[2]), values))
}
refused <- c(Refused = tagged_na("a"), "Not asked" = tagged_na("b"))
stata <- data.frame(
  region = labelled(as.integer(region), setNames(as.integer(regions), names(regions)),
                    "Region of residence"),
  size = labelled(size, sizes, "Household size"),
  sex = structure(sex, label = "Sex"),
  tenure = labelled(tagged(tenure_code), c(tenures, refused), "Tenure"),
  salary = labelled(tagged(salary_code), c(Refused = tagged_na("a")), "Annual salary"),
  weight = weight,
  day = day
)
write_dta(stata, "tests/golden/labelled_files.dta")

sas <- data.frame(
  region = structure(region, label = "Region of residence"),
  size = structure(size, label = "Household size"),
  sex = structure(sex, label = "Sex"),
  tenure = structure(tagged(tenure_code, c("A", "B")), label = "Tenure"),
  salary = structure(tagged(salary_code, c("A", "B")), label = "Annual salary"),
  weight = weight,
  day = day
)
write_xpt(sas, "tests/golden/labelled_files.xpt")

known <- function(values) ifelse(is.na(values) | values < 0, NA, values)
expected <- data.frame(region, size, sex, tenure = known(tenure_code),
                       salary = known(salary_code), weight, day = format(day))
write.csv(expected, "tests/golden/labelled_files.csv", row.names = FALSE, na = "", quote = FALSE)
