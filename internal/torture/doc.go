// Package torture holds the tests that kill the real service.
//
// They build the command once, drive it over its HTTP API alone, and keep their own books: what was
// acknowledged, and what every endpoint saw. While load runs the process is killed again and again;
// in the end those books must agree with each other and with the service's account.
//
//	go test ./internal/torture/              20 kills
//	go test -short ./internal/torture/       10
//	FAIRLANE_KILLS=200 go test -timeout 1h ./internal/torture/
package torture
