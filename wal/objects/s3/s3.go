// Package s3 keeps objects in a bucket of an S3-compatible server.
//
// The SDK signs, sends and parses; retrying is done here, around all of an operation, so that a body cut off in the middle is retried like
// a refused request. Every attempt has a time limit that grows with the size of the body, and every operation a number of attempts.
package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/varvedb/varve/wal/objects"
)

// Options of a Store. Zero values are the defaults.
type Options struct {
	// MaxAttempts bounds the attempts of an operation; 6.
	MaxAttempts int
	// AttemptTimeout is what an attempt may take, and MinRate adds to it the time of its body: 10 s, and a second for each 1 MiB.
	AttemptTimeout time.Duration
	MinRate        int64 // bytes per second
	// ConnectTimeout bounds the making of a connection; 3 s.
	ConnectTimeout time.Duration
	// BackoffFirst and BackoffMax bound the pause after an attempt: random, up to BackoffFirst (50 ms) at first, then twice as long each
	// time, up to BackoffMax (3 s).
	BackoffFirst, BackoffMax time.Duration
	// IdleConnections are kept open for the next request; 256.
	IdleConnections int
	// Credentials replace the standard chain: environment, profiles, web identity, container and instance roles.
	Credentials aws.CredentialsProvider
	// OnRetry is told of every failed attempt that is tried again; by many goroutines at once.
	OnRetry func(op string, err error)
	// Logger gets failed attempts, at level Debug; none when nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	setDefault(&o.MaxAttempts, 6)
	setDefault(&o.AttemptTimeout, 10*time.Second)
	setDefault(&o.MinRate, 1<<20)
	setDefault(&o.ConnectTimeout, 3*time.Second)
	setDefault(&o.BackoffFirst, 50*time.Millisecond)
	setDefault(&o.BackoffMax, 3*time.Second)
	setDefault(&o.IdleConnections, 256)
	if o.OnRetry == nil {
		o.OnRetry = func(string, error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Store is an objects.Store in a bucket.
type Store struct {
	location  Location
	options   Options
	client    *s3.Client
	transport *http.Transport

	// What the server turned out not to know; set once, never unset.
	noMultiDelete atomic.Bool
	noChecksum    atomic.Bool
}

var _ objects.Store = (*Store)(nil)

// Open makes a client for the bucket. It sends no request: CheckAccess does.
func Open(ctx context.Context, location Location, options Options) (*Store, error) {
	options = options.withDefaults()
	s := &Store{location: location, options: options}
	cfg, err := s.configure(ctx)
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", location, err)
	}
	s.client = s3.NewFromConfig(cfg, s.clientOptions)
	if s.client.Options().Region == "" {
		return nil, fmt.Errorf("object store %s: no region: add ?region=... to the URL or set AWS_REGION", location)
	}
	return s, nil
}

// configure reads environment and profiles as the AWS tools do.
func (s *Store) configure(ctx context.Context) (aws.Config, error) {
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(s.tune)),
		config.WithLogger(logging.Nop{}), // the default one writes to stderr in a form of its own
	}
	if s.options.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(s.options.Credentials))
	}
	if s.location.Region != "" {
		load = append(load, config.WithRegion(s.location.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return cfg, fmt.Errorf("AWS configuration: %w", err)
	}
	if cfg.Credentials != nil {
		cfg.Credentials = credentialsOf(cfg.Credentials)
	}
	// Our own copy of the client, with the environment's CA bundle in it, so that Close can end its connections.
	buildable, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return cfg, fmt.Errorf("AWS configuration: HTTP client %T is not one that can be tuned", cfg.HTTPClient)
	}
	s.transport = buildable.GetTransport()
	cfg.HTTPClient = &http.Client{
		Transport:     s.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return cfg, nil
}

// tune makes the connection pool one for many requests in parallel to one server.
func (s *Store) tune(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: s.options.ConnectTimeout, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = s.options.ConnectTimeout
	t.MaxIdleConns = 0 // as many as each host may have
	t.MaxIdleConnsPerHost = s.options.IdleConnections
	t.MaxConnsPerHost = 0
	t.IdleConnTimeout = 30 * time.Second // servers and balancers hang up after 60 s; be the first
	t.WriteBufferSize, t.ReadBufferSize = 64<<10, 64<<10
	// One request per connection: HTTP/2 would send all through one, and one stall would stop them all.
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
}

func (s *Store) clientOptions(o *s3.Options) {
	if s.location.Endpoint != "" {
		o.BaseEndpoint = aws.String(s.location.Endpoint)
	}
	o.UsePathStyle = o.BaseEndpoint != nil
	if s.location.PathStyle != nil {
		o.UsePathStyle = *s.location.PathStyle
	}
	if o.Region == "" && o.BaseEndpoint != nil {
		o.Region = "us-east-1" // other servers take it, or any
	}
	o.Retryer = aws.NopRetryer{}
	o.RetryMaxAttempts = 1
	// Servers other than Amazon's refuse or mangle the SDK's trailing checksums. Put sets its own in a header.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
	o.ContinueHeaderThresholdBytes = -1 // a round trip saved for each larger body
	o.ClientLogMode = 0
	o.Logger = logging.Nop{}
}

// String is the URL of the bucket and the prefix.
func (s *Store) String() string { return s.location.String() }

// Close closes the connections that are idle.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// key is the key in the bucket.
func (s *Store) key(key string) *string {
	return aws.String(s.base() + key)
}

// base is what the keys in the bucket begin with.
func (s *Store) base() string {
	if s.location.Prefix == "" {
		return ""
	}
	return s.location.Prefix + "/"
}

func (s *Store) bucket() *string { return aws.String(s.location.Bucket) }

// credentials marks the errors of a provider, which else drown in the SDK's own.
type credentials struct{ aws.CredentialsProvider }

// credentialsOf keeps what is known to be missing apart from what the store refused.
func credentialsOf(p aws.CredentialsProvider) aws.CredentialsProvider { return credentials{p} }

var errNoCredentials = errors.New("no AWS credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)")

func (c credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	value, err := c.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoCredentials, err)
	}
	return value, err
}
