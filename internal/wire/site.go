package wire

import "strings"

const siteSeparator = "@"

// ServerName returns a broker's NATS name, by which provisioners learn the node's site.
func ServerName(name, site string) string { return name + siteSeparator + site }

// SiteOfServer returns the site in a broker's NATS name, or "".
func SiteOfServer(name string) string {
	_, site, _ := strings.Cut(name, siteSeparator)
	return site
}
