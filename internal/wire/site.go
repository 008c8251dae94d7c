package wire

import "strings"

const siteSeparator = "@"

// ServerName returns a broker's NATS name, from which provisioners learn the site of its nodes.
func ServerName(name, site string) string { return name + siteSeparator + site }

// SiteOfServer returns the site in a broker's NATS name, or "".
func SiteOfServer(name string) string {
	_, site, _ := strings.Cut(name, siteSeparator)
	return site
}
