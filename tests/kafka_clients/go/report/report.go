// Package report has what the drivers in Go have in common: their settings, and a line for each feature.
package report

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Codecs are the codecs that each client writes.
var Codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// ErrUnsupported is what a feature returns that the client does not have, behind the reason.
var ErrUnsupported = errors.New("unsupported")

// Feature is one that a driver runs.
type Feature struct {
	Name  string
	Story func() error
}

// Setting is one that the runner gives to every driver.
func Setting(name string) string { return os.Getenv("MATRIX_" + name) }

// Topic exists, with one partition.
func Topic(feature string) string { return Setting("PREFIX") + "-" + feature }

// Same is an error if the two are not alike.
func Same(found, wanted any) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%v instead of %v", found, wanted)
	}
	return nil
}

// Eventually waits until a story succeeds, at most 30 s: what one node has done, another one learns a moment later.
func Eventually(story func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := story(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// TLS trusts the authority of the nodes.
func TLS() (*tls.Config, error) {
	ca, err := os.ReadFile(Setting("CA"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots}, nil
}

// MutualTLS also has the certificate of the caller.
func MutualTLS() (*tls.Config, error) {
	config, err := TLS()
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(Setting("CERTIFICATE"), Setting("KEY"))
	config.Certificates = []tls.Certificate{own}
	return config, err
}

// Run runs each feature and prints a line for it.
func Run(features []Feature) {
	for _, feature := range features {
		result, note := "passed", ""
		if err := feature.Story(); err != nil {
			result, note = "failed", err.Error()
			if errors.Is(err, ErrUnsupported) {
				result, note = "unsupported", strings.TrimSuffix(note, ": "+ErrUnsupported.Error())
			}
		}
		line, _ := json.Marshal(map[string]string{"feature": feature.Name, "result": result, "note": note})
		fmt.Println(string(line))
	}
}
