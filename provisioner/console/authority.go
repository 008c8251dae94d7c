package console

import (
	"slices"
	"strconv"
	"time"

	"muster/provisioner/ca"
)

// authority counts the certificates of each issuer only while a previous one is in use: that reads all records.
func (c installationPages) authority(v *visit) error {
	chain := &table{
		Title:   "Certificates",
		Columns: []string{"Certificate", "Kind", "Authority", "Valid from", "Expires", "Issuer", "SHA-256", "Key id"},
	}
	lists := &table{
		Title:   "Revocation lists",
		Note:    "Each is signed again in time, and after each revocation. `/v1/crl.pem` of this server has them.",
		Columns: []string{"Issuer", "Authority", "Number", "Signed", "Next one at the latest", "Key id"},
		Empty:   "None has been signed yet.",
	}
	all := c.cfg.Orders.Process.Authority().Certificates
	var live map[string]int
	if slices.ContainsFunc(all, func(one ca.CertificateInfo) bool { return one.Authority == "previous" }) {
		var err error
		if live, err = c.cfg.Issuers(v.r.Context()); err != nil {
			return err
		}
		chain.Note = "The authority is being replaced: nodes get a certificate of the present one when they renew. " +
			"Remove a previous one from `ca.previous` once no certificate of it is in use, and no token in use pins " +
			"its root."
		chain.Columns = append(chain.Columns, "In use by nodes and operators")
	}
	issuers := make(map[string]ca.CertificateInfo)
	for _, one := range all {
		count := cell{As: "number"}
		if one.What == "issuing" {
			issuers[one.KeyID], count.Text = one, strconv.Itoa(live[one.KeyID])
		}
		chain.add(one.Name, one.What, chip(one.Authority, map[string]string{"present": "good"}[one.Authority]),
			one.NotBefore, c.until(one.NotAfter, "expired"), one.Issuer, as("hash", one.Fingerprint),
			as("hash", one.KeyID), count)
	}
	for _, l := range c.cfg.Provisioner.AllCRLs() {
		by := issuers[l.Issuer]
		lists.add(by.Name, by.Authority, as("code", strconv.FormatUint(l.Number, 10)),
			l.ThisUpdate, c.until(l.NextUpdate, "overdue"), as("hash", l.Issuer))
	}
	return c.tables(v, "Authority", "It signs the certificates of nodes, brokers and operators. A token pins the "+
		"SHA-256 of its root. `/v1/ca.pem` of this server has the roots. `muster ca roll` replaces it.", chain, lists)
}

// until is the time of an end, or a word about one that has passed.
func (c *Console) until(end time.Time, passed string) cell {
	if !c.cfg.Now().Before(end) {
		return chip(passed, "bad")
	}
	return cell{As: "time", Time: end}
}
