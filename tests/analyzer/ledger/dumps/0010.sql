BEGIN TRANSACTION;
CREATE TABLE actions (
	id TEXT NOT NULL, 
	cluster TEXT DEFAULT '' NOT NULL, 
	namespace TEXT NOT NULL, 
	owner_kind TEXT NOT NULL, 
	owner_name TEXT NOT NULL, 
	owner_uid TEXT NOT NULL, 
	action TEXT NOT NULL, 
	mode TEXT NOT NULL, 
	state TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	gpus FLOAT NOT NULL, 
	idle_since_ms INTEGER NOT NULL, 
	created_ms INTEGER NOT NULL, 
	updated_ms INTEGER NOT NULL, 
	acted_ms INTEGER, 
	ended_ms INTEGER, 
	object_kind TEXT NOT NULL, 
	object_name TEXT NOT NULL, 
	object_uid TEXT NOT NULL, 
	object_path TEXT NOT NULL, 
	original_json TEXT NOT NULL, 
	patch_json TEXT NOT NULL, 
	evidence_json TEXT NOT NULL, 
	warnings_json TEXT NOT NULL, 
	steps_json TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	error TEXT NOT NULL, 
	cluster_uid TEXT DEFAULT '' NOT NULL, 
	waiting_gpus FLOAT, 
	PRIMARY KEY (id)
);
INSERT INTO "actions" VALUES('00aa11bb22cc33dd','','team','Deployment','server','uid','suspend','enforce','verified','default',2.0,1790000000000,1790002800000,1790002800000,1790002800000,NULL,'Deployment','server','uid','/apis/apps/v1/namespaces/team/deployments/server','{"/spec/replicas":2}','{"/spec/replicas":0}','{}','[]','[]','gpusteward','','0b1c2d3e-0000-4000-8000-000000000000',NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0010');
CREATE TABLE allocations (
	id INTEGER NOT NULL, 
	namespace TEXT NOT NULL, 
	pod TEXT NOT NULL, 
	pod_uid TEXT NOT NULL, 
	container TEXT NOT NULL, 
	owner_kind TEXT NOT NULL, 
	owner_name TEXT NOT NULL, 
	user_name TEXT NOT NULL, 
	node TEXT NOT NULL, 
	gpu_uuid TEXT NOT NULL, 
	gpu_instance TEXT NOT NULL, 
	gpu_index TEXT NOT NULL, 
	model TEXT NOT NULL, 
	share TEXT NOT NULL, 
	first_ms INTEGER NOT NULL, 
	last_ms INTEGER NOT NULL, 
	ended_ms INTEGER, cluster TEXT DEFAULT '' NOT NULL, labels TEXT DEFAULT '{}' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "allocations" VALUES(6374552957280781213,'team','pod-1','uid-1','main','Deployment','server','','node-0','GPU-1','','1','NVIDIA H100 80GB HBM3','exclusive',1790002800000,1790002800000,NULL,'','{}');
INSERT INTO "allocations" VALUES(8142056287148621206,'team','pod-0','uid-0','main','Deployment','server','','node-0','GPU-0','','0','NVIDIA H100 80GB HBM3','exclusive',1790002800000,1790002800000,NULL,'','{}');
CREATE TABLE currencies (
	since_ms INTEGER NOT NULL, 
	currency TEXT NOT NULL, 
	PRIMARY KEY (since_ms)
);
INSERT INTO "currencies" VALUES(0,'USD');
CREATE TABLE fleet_daily (
	day_ms INTEGER NOT NULL, 
	node TEXT NOT NULL, 
	model TEXT NOT NULL, 
	gpu_ms INTEGER NOT NULL, 
	known_ms INTEGER, 
	held_ms INTEGER, 
	cluster TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (day_ms, cluster, node, model)
)
 WITHOUT ROWID

;
CREATE TABLE fleet_hourly (
	hour_ms INTEGER NOT NULL, 
	node TEXT NOT NULL, 
	model TEXT NOT NULL, 
	gpu_ms INTEGER NOT NULL, 
	known_ms INTEGER, 
	held_ms INTEGER, 
	cluster TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (hour_ms, cluster, node, model)
)
 WITHOUT ROWID

;
INSERT INTO "fleet_hourly" VALUES(1790002800000,'node-0','H100',4800000,600000,1200000,'');
CREATE TABLE idle_spells (
	allocation_id INTEGER NOT NULL, 
	started_ms INTEGER NOT NULL, 
	idle_until_ms INTEGER, 
	ended_ms INTEGER, 
	ended_by TEXT, 
	proof TEXT NOT NULL, 
	signature TEXT NOT NULL, 
	gpu_fraction FLOAT NOT NULL, 
	PRIMARY KEY (allocation_id, started_ms)
)
 WITHOUT ROWID

;
INSERT INTO "idle_spells" VALUES(6374552957280781213,1790002800000,NULL,NULL,NULL,'sampled','parked',1.0);
CREATE TABLE leases (
	name TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	until_ms INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE notices (
	id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	owner_kind TEXT NOT NULL, 
	owner_name TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	created_ms INTEGER NOT NULL, 
	body TEXT NOT NULL, cluster TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key")
);
CREATE TABLE outbox (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	target TEXT NOT NULL, 
	headers_json TEXT NOT NULL, 
	body TEXT NOT NULL, 
	created_ms INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	next_ms INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	error TEXT NOT NULL, 
	CONSTRAINT outbox_kind CHECK (kind IN ('control', 'notice', 'alert')), 
	CONSTRAINT outbox_state CHECK (state IN ('pending', 'done', 'dead')), 
	UNIQUE ("key")
);
CREATE TABLE progress (
	name TEXT NOT NULL, 
	at_ms INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "progress" VALUES('booked',1790003400000);
CREATE TABLE reclaim_switch (
	name TEXT NOT NULL, 
	is_off INTEGER NOT NULL, 
	actor TEXT NOT NULL, 
	at_ms INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE snoozes (
	id INTEGER NOT NULL, 
	cluster TEXT DEFAULT '' NOT NULL, 
	namespace TEXT NOT NULL, 
	owner_kind TEXT NOT NULL, 
	owner_name TEXT NOT NULL, 
	until_ms INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	who TEXT NOT NULL, 
	created_ms INTEGER NOT NULL, 
	ended_ms INTEGER, 
	ended_by TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "snoozes" VALUES(1,'','team','Deployment','server',1790031600000,'a demo at noon','ada',1790002800000,NULL,NULL);
CREATE TABLE usage_daily (
	day_ms INTEGER NOT NULL, 
	allocation_id INTEGER NOT NULL, 
	allocated_ms INTEGER NOT NULL, 
	active_ms INTEGER NOT NULL, 
	idle_ms INTEGER NOT NULL, 
	unknown_ms INTEGER NOT NULL, 
	active_cost INTEGER NOT NULL, 
	idle_cost INTEGER NOT NULL, 
	unknown_cost INTEGER NOT NULL, 
	energy_mj INTEGER, 
	energy_ms INTEGER NOT NULL, 
	score_ms_sum INTEGER NOT NULL, 
	scored_ms INTEGER NOT NULL, 
	core_peak FLOAT, 
	memory_peak_bytes INTEGER, 
	memory_total_bytes INTEGER, 
	PRIMARY KEY (day_ms, allocation_id), 
	CONSTRAINT usage_daily_adds_up CHECK (allocated_ms = active_ms + idle_ms + unknown_ms)
)
 WITHOUT ROWID

;
CREATE TABLE usage_hourly (
	hour_ms INTEGER NOT NULL, 
	allocation_id INTEGER NOT NULL, 
	allocated_ms INTEGER NOT NULL, 
	active_ms INTEGER NOT NULL, 
	idle_ms INTEGER NOT NULL, 
	unknown_ms INTEGER NOT NULL, 
	active_cost INTEGER NOT NULL, 
	idle_cost INTEGER NOT NULL, 
	unknown_cost INTEGER NOT NULL, 
	energy_mj INTEGER, 
	energy_ms INTEGER NOT NULL, 
	score_ms_sum INTEGER NOT NULL, 
	scored_ms INTEGER NOT NULL, 
	core_peak FLOAT, 
	memory_peak_bytes INTEGER, 
	memory_total_bytes INTEGER, 
	PRIMARY KEY (hour_ms, allocation_id), 
	CONSTRAINT usage_hourly_adds_up CHECK (allocated_ms = active_ms + idle_ms + unknown_ms)
)
 WITHOUT ROWID

;
INSERT INTO "usage_hourly" VALUES(1790002800000,6374552957280781213,600000,0,600000,0,0,333334,0,66000000,600000,6969414,600000,0.0,42949672960,NULL);
INSERT INTO "usage_hourly" VALUES(1790002800000,8142056287148621206,600000,600000,0,0,333334,0,0,240000000,600000,31055130,600000,0.9,42949672960,NULL);
CREATE TABLE verdict_changes (
	id INTEGER NOT NULL, 
	at_ms INTEGER NOT NULL, 
	owner_kind TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	owner_name TEXT NOT NULL, 
	activity TEXT NOT NULL, 
	signature TEXT NOT NULL, 
	state TEXT NOT NULL, 
	score FLOAT, 
	gpus INTEGER NOT NULL, 
	idle_gpus INTEGER NOT NULL, 
	idle_since_ms INTEGER, cluster TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "verdict_changes" VALUES(1,1790002800000,'Deployment','team','server','active','steady','normal',3.16871195786398232021e+01,2,1,NULL,'');
CREATE INDEX allocations_by_end ON allocations (ended_ms);
CREATE INDEX verdict_changes_by_time ON verdict_changes (at_ms);
CREATE INDEX notices_by_time ON notices (created_ms);
CREATE INDEX outbox_by_stream ON outbox (stream, id);
CREATE INDEX outbox_waiting ON outbox (state, next_ms);
CREATE INDEX verdict_changes_by_owner ON verdict_changes (cluster, namespace, owner_kind, owner_name, at_ms);
CREATE INDEX idle_spells_by_end ON idle_spells (ended_ms);
CREATE INDEX snoozes_by_owner ON snoozes (cluster, namespace, owner_kind, owner_name, created_ms);
CREATE INDEX snoozes_by_time ON snoozes (until_ms);
CREATE INDEX actions_by_state ON actions (state);
CREATE INDEX actions_by_waiting ON actions (waiting_gpus);
CREATE INDEX actions_by_acted ON actions (acted_ms);
CREATE INDEX actions_by_time ON actions (created_ms);
CREATE INDEX actions_by_owner ON actions (cluster, namespace, owner_kind, owner_name, created_ms);
DELETE FROM "sqlite_sequence";
COMMIT;
