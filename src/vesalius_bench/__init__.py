"""The papers' tables, the AF1 study, ratings, the league, surveys, registered claims and MIB."""
