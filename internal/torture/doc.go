// Package torture holds the tests that kill the real service.
//
// They build the command once, drive it over its HTTP API alone, and keep their own books: what was
// acknowledged, and what every endpoint saw. While load runs the process is killed again and again;
// in the end those books must agree with each other and with the service's account.
//
// Gates (fairlane gate) that share a quota are tested so too: there it is the store that is killed.
//
//	go test ./internal/torture/            24 ends under load, 20 of them kill -9
//	go test -short ./internal/torture/     half as many
//	go test -timeout 60m ./internal/torture/ -torture    ten times as many
package torture
