package fetch

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/atoll"
)

// errCredentials is the error of a server that refuses the credentials, or needs some.
var errCredentials = errors.New("the server refuses the credentials")

// isNotFound reports whether a registry has no such content.
func isNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || registryStatus(err) == http.StatusNotFound
}

// registryStatus returns the status of a registry's answer; 0 where the error is another one.
func registryStatus(err error) int {
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// isRefusal reports whether a server refuses the credentials, or needs some.
func isRefusal(err error) bool {
	status := registryStatus(err)
	return errors.Is(err, errCredentials) || status == http.StatusUnauthorized || status == http.StatusForbidden ||
		slices.ContainsFunc([]error{transport.ErrAuthenticationRequired, transport.ErrAuthorizationFailed, auth.ErrBasicCredentialNotFound}, func(one error) bool { return errors.Is(err, one) })
}

// failureOf returns the failure of an error; nil for none.
func failureOf(err error) *Failure {
	var known *Failure
	var refused *addressguard.RefusedAddressError
	var token *tokenRefusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return newFailure(atoll.ReasonAddressRefused, "%v; the hub's operator allows it by --source-allowed-cidrs", refused)
	case errors.Is(err, errMoved):
		return newFailure(atoll.ReasonRedirectRefused, "%v; state the URL that it leads to", errMoved)
	case errors.Is(err, errTextTooLarge):
		return newFailure(atoll.ReasonRepositoryUnreachable, "the server sends more than %d bytes as its list of refs", maxTextBytes)
	case errors.Is(err, errTooLarge):
		return newFailure(atoll.ReasonContentTooLarge, "the server sends more than a fetch may read of one revision")
	case errors.As(err, &token):
		return token.newFailure()
	case isRefusal(err):
		return newFailure(atoll.ReasonCredentialsRefused, "the server refuses the credentials, or needs some; see secretRef of the Repository")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return newFailure(atoll.ReasonRepositoryMissing, "the server has no such repository, or hides it without credentials")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return newFailure(atoll.ReasonRefMissing, "the repository is empty")
	}
	return connectionFailure(err)
}

// connectionFailure returns the failure of a connection, or of an answer.
func connectionFailure(err error) *Failure {
	var certificate *tls.CertificateVerificationError
	var status *githttp.Err
	var answered httpStatusError
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &certificate):
		return newFailure(atoll.ReasonServerNotVerified, "the server's certificate cannot be verified: %s; see caBundle of the Repository", addressguard.DescribeCertificateError(certificate.Err))
	case errors.As(err, &status):
		return newFailure(atoll.ReasonRepositoryUnreachable, "the server answers with status %d", status.StatusCode())
	case errors.As(err, &answered):
		return newFailure(atoll.ReasonRepositoryUnreachable, "%v", answered)
	case registryStatus(err) != 0:
		return newFailure(atoll.ReasonRepositoryUnreachable, "%v", httpStatusError(registryStatus(err)))
	case errors.As(err, &dns):
		return newFailure(atoll.ReasonRepositoryUnreachable, "the name of the host, or of the hub's proxy, cannot be resolved")
	case errors.As(err, &timeout) && timeout.Timeout():
		return newFailure(atoll.ReasonFetchTimedOut, "the server does not answer in time")
	}
	return newFailure(atoll.ReasonRepositoryUnreachable, "%s", describeError(err))
}

// describeError returns the kind of an error. A text that the server wrote may be in the error, and is left out.
func describeError(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return addressguard.DescribeFailedOperation(operation)
	}
	if slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, packfile.ErrMalformedPackFile, packfile.ErrEmptyPackfile, packfile.ErrInvalidObject}, func(one error) bool { return errors.Is(err, one) }) {
		return "the server's answer ends early or is damaged"
	}
	return "the server does not answer as a server of such a Repository does"
}
