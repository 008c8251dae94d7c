# What the demo's operators think of: a shadow policy, which decides nothing.
package muster.enroll

approval if input.facts.role == "db"

reasons contains "databases wait for their owner" if input.facts.role == "db"
