// Package fetch reads the objects of git, Helm and OCI repositories in a child process of the hub's own binary.
//
// Contract: Fetch returns within its context, whatever the server sends: the child has bounds of time, memory, files
// and bytes, and its end ends nothing else. The hub itself reads a short list of refs, or an index without
// parsing it, and starts no child when no ref moved. The request with its credentials goes to the child by standard
// input, and never by arguments or environment. Credentials are sent to the host of the URL, and to the stated or known token host of a
// registry, alone. No error has a credential or the text of a server's answer; a token host that is refused is named. Symlinks and submodules are not followed; where they may hold content,
// they are problems. Digests of indexes, with the revisions in them, are all that
// is kept between two fetches. Fetch is safe for concurrent use.
package fetch

import (
	"time"

	"atoll.dev/atoll/internal/sources/render"
)

// Bounds of one fetch.
const (
	// Timeout of a child.
	Timeout = 2 * time.Minute
	// connectTimeout is the most for a connection, and for its handshake; answerTimeout is that for the first bytes of
	// an answer.
	connectTimeout = 15 * time.Second
	answerTimeout  = 45 * time.Second
	// maxPackBytes is the most that a server may send to one child for commits, which is the disk that a child takes.
	maxPackBytes = 256 << 20
	// maxTextBytes is the most that a server may send as a list of refs, and maxOwnTextBytes what of it the hub itself
	// reads.
	maxTextBytes    = 16 << 20
	maxOwnTextBytes = 256 << 10
	// maxRequestBytes and maxAnswerBytes bound what the hub and its child exchange.
	maxRequestBytes = 16 << 20
	maxAnswerBytes  = 32 << 20
	// maxContentsBytes is the most of all contents of one answer. Contents beyond are left to the next fetch.
	maxContentsBytes = 12 << 20
	// childMemory is the soft limit of the child's memory, and childData the hard one.
	childMemory = 192 << 20
	childData   = 512 << 20
)

// buildTime is how long a child may take for charts and kustomizations. Contents beyond are left to the next fetch. Tests
// have more.
var buildTime = 50 * time.Second

// Request is the request to a child.
type Request struct {
	// Type of the Repository, such as TypeGit.
	Type     string `json:"type"`
	URL      string `json:"url"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	CABundle string `json:"caBundle,omitempty"`
	// SSH has the credentials of a URL of that scheme, in place of username and password.
	SSH *SSHCredentials `json:"ssh,omitempty"`
	// TokenHost is the host of the tokens of a registry, which gets the credentials too; empty: the known one of the registry.
	TokenHost string `json:"tokenHost,omitempty"`
	// AllowedNetworks are dialled although they are refused otherwise.
	AllowedNetworks []string `json:"allowedNetworks,omitempty"`
	Wants           []Want   `json:"wants,omitempty"`
	// Verify is what must be signed; nil: nothing.
	Verify *Verification `json:"verify,omitempty"`
	// Descends requests whether a commit descends from another one.
	Descends *Descent `json:"descends,omitempty"`
}

// Want is the content that one Source reads, or what one generator lists.
type Want struct {
	ID string `json:"id"`
	// Ref such as refs/heads/main, or the hash of a commit.
	Ref string `json:"ref"`
	render.Want
	// Listing is what a generator lists of the tree in place of the content of a Source; nil: none.
	Listing *render.ListingWant `json:"listing,omitempty"`
	// SeenCommit and SeenDigest are what was read last. Content of the one or the other is not sent again.
	SeenCommit string `json:"seenCommit,omitempty"`
	SeenDigest string `json:"seenDigest,omitempty"`
}

// Descent is two commits.
type Descent struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// Answer of a child.
type Answer struct {
	// Failure ends the fetch; nil: it succeeded.
	Failure  *Failure  `json:"failure,omitempty"`
	Contents []Content `json:"contents,omitempty"`
	// Descends answers the question of that name.
	Descends bool `json:"descends,omitempty"`
	// Checkpoint is of an index that was read; nil without one.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Content of one Source.
type Content struct {
	ID     string `json:"id"`
	Commit string `json:"commit,omitempty"`
	// Message is the first line of the commit's message.
	Message string `json:"message,omitempty"`
	Author  string `json:"author,omitempty"`
	// Signer is the key that signed the revision, where one must.
	Signer string `json:"signer,omitempty"`
	// Digest of what of the commit the Source reads.
	Digest string `json:"digest,omitempty"`
	// Unchanged is true where the digest is the seen one. Objects are then left out.
	Unchanged bool `json:"unchanged,omitempty"`
	// Postponed is true where the answer had no room for the content.
	Postponed bool `json:"postponed,omitempty"`
	// Inputs is the digest of the inputs of the Want, which the hub notes.
	Inputs string `json:"-"`
	// Listing is what a generator listed.
	Listing *render.Listing `json:"listing,omitempty"`
	render.Result
}

// Failure is why something could not be read.
type Failure = render.Failure

var newFailure = render.NewFailure
