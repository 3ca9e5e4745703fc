package commitstatus

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// gitServer is a kind of git servers, as its API is documented.
type gitServer struct {
	// apiURL returns the URL of the API of the server that has a repository.
	apiURL func(host string) string
	// path returns the path of the statuses of a commit, below the URL of the API. repository is its path on the server.
	path func(repository []string, commit string) string
	// header and prefix precede the token.
	header, prefix string
	// nameField is the field of the name under which the status is shown, and states are the words of the server.
	nameField string
	states    map[v1alpha1.CommitState]string
}

// statusPathOfGitHub is that of GitHub, which Gitea and Forgejo share.
func statusPathOfGitHub(repository []string, commit string) string {
	owner, name := repository[len(repository)-2], repository[len(repository)-1]
	return "/repos/" + url.PathEscape(owner) + "/" + url.PathEscape(name) + "/statuses/" + commit
}

var wordsOfGitHub = map[v1alpha1.CommitState]string{v1alpha1.CommitPending: "pending", v1alpha1.CommitSuccess: "success", v1alpha1.CommitFailure: "failure"}

// gitServers is the table of servers.
var gitServers = map[v1alpha1.GitServer]gitServer{
	v1alpha1.GitServerGitHub: {
		apiURL: func(host string) string {
			if host == "github.com" {
				return "https://api.github.com"
			}
			return "https://" + host + "/api/v3"
		},
		path: statusPathOfGitHub, header: "Authorization", prefix: "Bearer ", nameField: "context", states: wordsOfGitHub,
	},
	v1alpha1.GitServerGitea: {
		apiURL: func(host string) string { return "https://" + host + "/api/v1" },
		path:   statusPathOfGitHub, header: "Authorization", prefix: "token ", nameField: "context", states: wordsOfGitHub,
	},
	v1alpha1.GitServerGitLab: {
		apiURL: func(host string) string { return "https://" + host + "/api/v4" },
		path: func(repository []string, commit string) string {
			return "/projects/" + url.PathEscape(strings.Join(repository, "/")) + "/statuses/" + commit
		},
		header: "PRIVATE-TOKEN", nameField: "name",
		states: map[v1alpha1.CommitState]string{v1alpha1.CommitPending: "running", v1alpha1.CommitSuccess: "success", v1alpha1.CommitFailure: "failed"},
	},
}

// repositoryPath returns the parts of the path of a repository on its server, without the ending .git.
func repositoryPath(u *url.URL) (out []string) {
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git"), "/") {
		if part != "" && part != "~" {
			out = append(out, part)
		}
	}
	return out
}

// findAPI returns the URL of the API of the server, and the path of the repository there.
func findAPI(spec *v1alpha1.RepositorySpec) (api *url.URL, repository []string, err error) {
	u, err := url.Parse(spec.Git.URL)
	if err != nil {
		return nil, nil, errors.New("the URL of the repository is no URL")
	}
	if repository = repositoryPath(u); len(repository) < 2 || slices.Contains(repository, ".") || slices.Contains(repository, "..") {
		return nil, nil, errors.New("the URL of the repository has no owner and name")
	}
	host := u.Host
	if u.Scheme == "ssh" {
		host = u.Hostname()
	}
	text := spec.CommitStatus.URL
	if text == "" {
		text = gitServers[spec.CommitStatus.Server].apiURL(host)
	}
	if api, err = url.Parse(text); err != nil || !isPlainAPI(api) {
		return nil, nil, errors.New("the URL of the API must be https://HOST/PATH, without credentials")
	}
	return api, repository, nil
}

// isPlainAPI reports whether a URL has a host and a path alone, and TLS.
func isPlainAPI(u *url.URL) bool {
	plain := url.URL{Scheme: "https", Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return u.Hostname() != "" && !strings.Contains(u.Host, "%") && *u == plain
}

// CheckRepository returns why statuses of commits cannot be reported for a Repository; nil when they can.
func CheckRepository(spec *v1alpha1.RepositorySpec) error {
	if spec.Git == nil {
		return errors.New("commits are those of git repositories alone")
	}
	_, _, err := findAPI(spec)
	return err
}

// Message is the request by which a server takes a report: a POST of JSON.
type Message struct {
	URL string
	// Header and Value have the token.
	Header, Value string
	Body          []byte
}

// NewMessage returns the message of a report. name is that under which people see it. The Repository is one that CheckRepository accepts.
func NewMessage(spec *v1alpha1.RepositorySpec, r Report, name, token string) (Message, error) {
	api, repository, err := findAPI(spec)
	if err != nil {
		return Message{}, err
	}
	server := gitServers[spec.CommitStatus.Server]
	body, err := json.Marshal(map[string]string{"state": server.states[r.State], "description": r.Description, server.nameField: name})
	if err != nil {
		return Message{}, fmt.Errorf("encode a report: %w", err)
	}
	return Message{
		URL:    strings.TrimSuffix(api.String(), "/") + server.path(repository, r.Commit),
		Header: server.header, Value: server.prefix + token, Body: body,
	}, nil
}

// JudgeAnswer returns why a server did not take a report, by the status of its answer; empty when it did.
func JudgeAnswer(status int) string {
	switch {
	case status >= 200 && status < 300:
		return ""
	case status >= 300 && status < 400:
		return "the server redirects; state the URL of its API in spec.commitStatus.url"
	case status == 401 || status == 403:
		return fmt.Sprintf("the server answers with status %d: the token is not valid, or lacks the right to write statuses of commits", status)
	case status == 404:
		return "the server answers with status 404: it has no such repository or commit, or the token may not see it"
	}
	return fmt.Sprintf("the server answers with status %d", status)
}
