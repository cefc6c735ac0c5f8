package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
)

// CreateTable asks for a table.
type CreateTable struct {
	Name         string // ValidateName
	Kind         layer.TableKind
	Buckets      int               // 1 to Options.MaxBuckets
	Options      map[string]string // ValidateTableOptions
	ValidateOnly bool              // check everything, make nothing
	// Here lets this node lead every bucket, if streams may be placed on it: for a table whose first records come with the request.
	Here bool
}

// CreateTable makes a table and returns once this node's view has it. Its streams are led by live nodes, bucket i by node (i + start) mod n, or
// by this node.
// Errors: ErrTableExists, ErrInvalidName, ErrInvalidOption, ErrInvalidBuckets, ErrUnavailable (whether it was made is then not known).
func (n *Node) CreateTable(ctx context.Context, create CreateTable) (layer.TableRow, error) {
	if create.Kind == "" {
		create.Kind = layer.LogTable
	}
	if err := n.checkCreate(create); err != nil {
		return layer.TableRow{}, err
	}
	if err := n.mayServe(); err != nil {
		return layer.TableRow{}, err
	}
	if _, ok := n.view.Table(create.Name); ok {
		return layer.TableRow{}, fmt.Errorf("%w: %q", ErrTableExists, create.Name)
	}
	if create.ValidateOnly {
		return layer.TableRow{Name: create.Name, Kind: create.Kind, Buckets: create.Buckets, Target: create.Buckets, Options: create.Options}, nil
	}
	at := time.Now()
	row, _, err := n.layer.CreateTable(ctx, n.ref, layer.CreateTable{
		Name: create.Name, UUID: uuid.New(), Kind: create.Kind, Buckets: create.Buckets, Options: maps.Clone(create.Options),
		Leaders: n.leadersOf(create, at), RequestID: uuid.New(), At: at,
	})
	switch {
	case errors.Is(err, layer.ErrTableExists):
		return layer.TableRow{}, fmt.Errorf("%w: %q", ErrTableExists, create.Name)
	case err != nil:
		return layer.TableRow{}, n.commandFailed("create table", err)
	}
	n.logger.Info("table created", "table", row.Name, "id", row.ID, "buckets", row.Buckets)
	n.readForward(ctx)
	n.sync.loop.trigger()
	return row, nil
}

func (n *Node) checkCreate(create CreateTable) error {
	if err := ValidateName(create.Name); err != nil {
		return err
	}
	if create.Kind != layer.LogTable {
		return fmt.Errorf("%w: kind %q of table %q, only %q is served", ErrInvalidRequest, create.Kind, create.Name, layer.LogTable)
	}
	if create.Buckets < 1 || create.Buckets > n.options.MaxBuckets {
		return fmt.Errorf("%w: %d, want 1 to %d", ErrInvalidBuckets, create.Buckets, n.options.MaxBuckets)
	}
	return ValidateTableOptions(create.Options)
}

func (n *Node) leadersOf(create CreateTable, at time.Time) []int64 {
	if self := n.Self(); create.Here && self.Slots > 0 && !self.Fenced {
		return slices.Repeat([]int64{self.ID}, create.Buckets)
	}
	return n.spread(create.Buckets, at)
}

// spread places buckets on live nodes with slots, in turn. Without such a node they have no leader until there is one.
func (n *Node) spread(buckets int, at time.Time) []int64 {
	return spread(n.LiveNodes(), 0, buckets, at)
}

func spread(nodes []layer.NodeRow, from, buckets int, at time.Time) []int64 {
	var able []int64
	for _, row := range nodes {
		if row.Slots > 0 {
			able = append(able, row.ID)
		}
	}
	leaders := make([]int64, buckets)
	if len(able) == 0 {
		return leaders
	}
	start := int(at.UnixNano()/1000%int64(len(able))) + from
	for i := range leaders {
		leaders[i] = able[(i+start)%len(able)]
	}
	return leaders
}

// DeleteTable deletes a table by name. Its streams are refused at once, its bytes go later. Errors: ErrUnknownTable, ErrUnavailable.
func (n *Node) DeleteTable(ctx context.Context, name string) error {
	row, err := n.Table(ctx, name)
	if err != nil {
		return err
	}
	return n.deleteTable(ctx, row, "request")
}

func (n *Node) deleteTable(ctx context.Context, row layer.TableRow, why string) error {
	if err := n.mayServe(); err != nil {
		return err
	}
	err := n.layer.DeleteTable(ctx, n.ref, row.ID, uuid.New())
	switch {
	case errors.Is(err, layer.ErrTableNotFound):
		return fmt.Errorf("%w: %q", ErrUnknownTable, row.Name)
	case err != nil:
		return n.commandFailed("delete table", err)
	}
	n.logger.Info("table deleted", "table", row.Name, "id", row.ID, "why", why)
	n.readForward(ctx)
	n.sync.loop.trigger()
	if t := n.tenure.Load(); t != nil {
		t.lifecycle.trigger()
	}
	return nil
}

// AlterTable sets and removes options; they take effect at once on this node and on others as their views follow. Errors: ErrUnknownTable, ErrInvalidOption,
// ErrUnavailable.
func (n *Node) AlterTable(ctx context.Context, name string, set map[string]string, remove []string) (layer.TableRow, error) {
	if err := ValidateTableOptions(set); err != nil {
		return layer.TableRow{}, err
	}
	for _, option := range remove {
		if _, ok := TableOptionByName(option); !ok {
			return layer.TableRow{}, &InvalidOption{Name: clip(option), Reason: "there is no such option"}
		}
	}
	row, err := n.Table(ctx, name)
	if err != nil {
		return layer.TableRow{}, err
	}
	if err := n.mayServe(); err != nil {
		return layer.TableRow{}, err
	}
	row, err = n.layer.AlterTable(ctx, n.ref, row.ID, set, remove, uuid.New())
	switch {
	case errors.Is(err, layer.ErrTableNotFound):
		return layer.TableRow{}, fmt.Errorf("%w: %q", ErrUnknownTable, name)
	case err != nil:
		return layer.TableRow{}, n.commandFailed("alter table", err)
	}
	n.logger.Info("table altered", "table", row.Name, "id", row.ID, "set", set, "removed", remove)
	n.readForward(ctx)
	return row, nil
}

// AddBuckets raises the number of buckets of a table to target; fewer than it has is ErrInvalidBuckets. Other errors: ErrUnknownTable, ErrUnavailable.
func (n *Node) AddBuckets(ctx context.Context, name string, target int, validateOnly bool) (layer.TableRow, error) {
	row, err := n.Table(ctx, name)
	if err != nil {
		return layer.TableRow{}, err
	}
	if target <= row.Target || target > n.options.MaxBuckets {
		return layer.TableRow{}, fmt.Errorf("%w: %d, want more than the %d that %q has and at most %d", ErrInvalidBuckets, target, row.Target, name, n.options.MaxBuckets)
	}
	if err := n.mayServe(); err != nil {
		return layer.TableRow{}, err
	}
	if validateOnly {
		return row, nil
	}
	return n.growTable(ctx, row, target)
}

// growTable makes the buckets that a table lacks up to target. The lease holder also calls it for a table whose creation was cut short.
func (n *Node) growTable(ctx context.Context, row layer.TableRow, target int) (layer.TableRow, error) {
	leaders := spread(n.LiveNodes(), row.Buckets, target-row.Buckets, time.Now())
	row, _, err := n.layer.AddBuckets(ctx, n.ref, row.ID, target, leaders, uuid.New())
	switch {
	case errors.Is(err, layer.ErrTableNotFound):
		return layer.TableRow{}, fmt.Errorf("%w: id %d", ErrUnknownTable, row.ID)
	case err != nil:
		return layer.TableRow{}, n.commandFailed("add buckets", err)
	}
	n.logger.Info("buckets added", "table", row.Name, "id", row.ID, "buckets", row.Buckets)
	n.readForward(ctx)
	n.sync.loop.trigger()
	return row, nil
}

// commandFailed makes what a command failed with retryable, unless the arguments were refused, and ends the node when it was fenced.
func (n *Node) commandFailed(what string, err error) error {
	if errors.Is(err, layer.ErrInvalid) {
		return fmt.Errorf("%w: %s: %w", ErrInvalidRequest, what, err)
	}
	n.failIfFenced(what, err)
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}
