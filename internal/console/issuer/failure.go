package issuer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/oauth2"

	"atoll.dev/atoll/internal/phrase"
)

// FailureKind is why a sign-in by the issuer did not succeed.
type FailureKind string

const (
	// Unreachable: the issuer does not answer, or answers what no issuer does.
	Unreachable FailureKind = "IssuerUnreachable"
	// Refused: the issuer refuses the sign-in, or its renewal.
	Refused FailureKind = "IssuerRefused"
	// Unverified: the issuer's token is not for this sign-in.
	Unverified FailureKind = "TokenUnverified"
)

// maxForeignText bounds what is shown of the issuer's own words.
const maxForeignText = 120

// Failure is why a sign-in did not succeed. Its message is short, of printable ASCII, and has no credential.
type Failure struct {
	Kind    FailureKind
	Message string
}

func (f *Failure) Error() string { return f.Message }

// DescribeRefusal returns the failure of an error that the issuer states in the terms of OAuth.
func DescribeRefusal(code, description string) *Failure {
	message := "the issuer refuses: " + quoteForeignText(code)
	if description != "" {
		message += " " + quoteForeignText(description)
	}
	return &Failure{Kind: Refused, Message: message}
}

// quoteForeignText returns a short quotation in which every special character is escaped.
func quoteForeignText(s string) string {
	return strconv.QuoteToASCII(phrase.TruncateText(strings.ToValidUTF8(s, "?"), maxForeignText))
}

// describeError returns the failure of a request to the issuer. The issuer's answer is not in it but for an error of OAuth.
func describeError(what string, err error) *Failure {
	refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || refusal.Response == nil {
		return &Failure{Kind: Unreachable, Message: what + ": " + describeCause(err)}
	}
	failure := &Failure{Kind: Refused, Message: "the issuer refuses with status " + strconv.Itoa(refusal.Response.StatusCode)}
	if refusal.ErrorCode != "" {
		failure = DescribeRefusal(refusal.ErrorCode, refusal.ErrorDescription)
	}
	if isTemporary(refusal) {
		failure.Kind = Unreachable
	}
	return failure
}

// isTemporary reports whether the issuer says that it cannot answer now, which decides nothing about the sign-in.
func isTemporary(refusal *oauth2.RetrieveError) bool {
	status := refusal.Response.StatusCode
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || refusal.ErrorCode == "temporarily_unavailable" || refusal.ErrorCode == "server_error"
}

// describeCause names the cause of a failed request in our own words, so that no foreign text is shown.
func describeCause(err error) string {
	var tooLarge *http.MaxBytesError
	var unknown x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var certificate *tls.CertificateVerificationError
	var lookup *net.DNSError
	var dial *net.OpError
	switch {
	case errors.As(err, &tooLarge) || strings.Contains(err.Error(), "http: request body too large"):
		return "its answer is larger than 1 MiB"
	case errors.Is(err, errRedirect):
		return "it redirects, which is not followed"
	case errors.Is(err, errNotHTTPS):
		return "one of its addresses is not https"
	case errors.As(err, &unknown), errors.As(err, &wrongName), errors.As(err, &certificate):
		return "its certificate is not trusted"
	case errors.As(err, &lookup):
		return "its name is not found"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "it does not answer in time"
	case errors.As(err, &dial):
		return "no connection"
	}
	return "its answer is not that of an OpenID Connect issuer"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
