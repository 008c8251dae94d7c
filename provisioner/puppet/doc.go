// Package puppet enrolls unmodified Puppet agents over HTTPS, and serves Foreman's smart-proxy API. Package provisioner
// decides.
package puppet
