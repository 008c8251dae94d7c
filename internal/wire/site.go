package wire

import "strings"

const siteSeparator = "@"

// ServerName returns the NATS name of a broker at a site. NATS reports it with each request, so provisioners learn
// the node's site.
func ServerName(name, site string) string { return name + siteSeparator + site }

// SiteOfServer returns the site in a broker's NATS name, or "".
func SiteOfServer(name string) string {
	_, site, _ := strings.Cut(name, siteSeparator)
	return site
}
