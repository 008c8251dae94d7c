package console

import (
	"muster/provisioner/ca"
)

// authority counts the certificates of each issuer only while a previous one is in use: that reads all records.
func (c installationPages) authority(v *visit) error {
	info := c.cfg.Orders.Process.Authority()
	chain := &table{
		Title:   "Certificates",
		Columns: []string{"Certificate", "Kind", "Authority", "Valid from", "Expires", "Issuer", "SHA-256", "Key id"},
	}
	page := &tablePage{
		Title: "Authority",
		Note: "It signs the certificates of nodes, brokers and operators. A token pins the SHA-256 of its root. " +
			"`muster ca roll` replaces it.",
		Links: []cell{
			{Text: "Root certificates (PEM)", Link: "/v1/ca.pem"},
			{Text: "Revocation lists (PEM)", Link: "/v1/crl.pem"},
		},
		Tables: []*table{chain},
	}
	issuers, rolling := make(map[string]ca.CertificateInfo), false
	for _, one := range info.Certificates {
		tone := ""
		if one.Authority == "present" {
			tone = "good"
		}
		expires := cell{As: "time", Time: one.NotAfter}
		if !c.cfg.Now().Before(one.NotAfter) {
			expires = chip("expired", "bad")
		}
		chain.add(one.Name, one.What, chip(one.Authority, tone), one.NotBefore, expires, one.Issuer,
			as("hash", one.Fingerprint), as("hash", one.KeyID))
		if one.What == "issuing" {
			issuers[one.KeyID], rolling = one, rolling || one.Authority == "previous"
		}
	}
	lists := &table{
		Title:   "Revocation lists",
		Note:    "Each is signed again in time, and after each revocation.",
		Columns: []string{"Issuer", "Authority", "Number", "Signed", "Next one at the latest", "Key id"},
		Empty:   "None has been signed yet.",
	}
	for _, l := range c.cfg.Provisioner.AllCRLs() {
		next := cell{As: "time", Time: l.NextUpdate}
		if !c.cfg.Now().Before(l.NextUpdate) {
			next = chip("overdue", "bad")
		}
		by := issuers[l.Issuer]
		lists.add(by.Name, by.Authority, l.Number, l.ThisUpdate, next, as("hash", l.Issuer))
	}
	page.Tables = append(page.Tables, lists)
	if rolling {
		live, err := c.cfg.Issuers(v.r.Context())
		if err != nil {
			return err
		}
		progress := &table{
			Title: "Progress of the replacement",
			Note: "Nodes get a certificate of the present authority when they renew. Remove a previous one from " +
				"`ca.previous` once it has no valid certificate, and no token in use pins its root.",
			Columns: []string{"Issuer", "Authority", "Valid certificates of nodes and operators", "Key id"},
		}
		for _, one := range info.Certificates {
			if one.What == "issuing" {
				progress.add(one.Name, one.Authority, live[one.KeyID], as("hash", one.KeyID))
			}
		}
		page.Tables = append(page.Tables, progress)
	}
	return c.tables(v, page)
}
