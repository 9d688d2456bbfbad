//go:build tools

// Package tools names the command that is built, for `go mod tidy`.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
