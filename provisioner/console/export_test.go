package console

// Routes returns the patterns of all pages for operators.
func Routes() (all []string) {
	for pattern := range (&Console{}).operatorRoutes() {
		all = append(all, pattern)
	}
	return all
}
