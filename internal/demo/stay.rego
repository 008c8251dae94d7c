# Added by the demo to the default policy: reasons to deny and to put off.
package muster.enroll

deny contains "machines in quarantine stay out" if input.facts.quarantine == true

defer if input.facts.burn_in == "running"

reasons contains "its burn-in test is still running" if defer
