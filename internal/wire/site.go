package wire

import "strings"

// siteMark stands between the name of a broker and its site.
const siteMark = "@"

// ServerName returns what a broker at a site calls itself in NATS. It is what
// NATS reports of each request, so provisioners anywhere learn from it where the
// node is that asks.
func ServerName(name, site string) string { return name + siteMark + site }

// SiteOfServer returns the site of the broker that calls itself so in NATS, ""
// if it is at none.
func SiteOfServer(name string) string {
	_, site, _ := strings.Cut(name, siteMark)
	return site
}
