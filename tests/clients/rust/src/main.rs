//! One request on stdin, one answer on stdout, with rskafka: tests/clients/program.py says which.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::BackoffConfig;
use rskafka::record::RecordAndOffset;
use rustls::pki_types::{pem::PemObject, CertificateDer};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

const PATIENCE: Duration = Duration::from_secs(120);
const WAIT_MS: i32 = 200; // of a fetch at the end of the log
const IDLE_FETCHES: i32 = 10; // in a row; then nothing comes
const FETCH_BYTES: i32 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let request = serde_json::from_reader(std::io::stdin())?;
    let answer = match tokio::time::timeout(PATIENCE, answer(&request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => json!({"error": error.to_string()}),
        Err(_) => json!({"error": format!("no answer in {PATIENCE:?}")}),
    };
    println!("{answer}");
    Ok(())
}

async fn answer(request: &Value) -> Outcome<Value> {
    let client = client(request).await?;
    match request["action"].as_str() {
        Some("read") => read(&client, request).await,
        Some("lookup") => lookup(&client, request).await,
        Some("topics") => topics(&client).await,
        _ => Err("rskafka has no consumer groups".into()),
    }
}

async fn client(request: &Value) -> Outcome<Client> {
    let security = &request["security"];
    let patience = BackoffConfig { deadline: Some(PATIENCE / 6), ..Default::default() };
    let servers = vec![text(&request["servers"])];
    let mut builder = ClientBuilder::new(servers).backoff_config(patience);
    if let Some(ca) = security["ca"].as_str() {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_file_iter(ca)?.flatten());
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
        builder = builder.tls_config(Arc::new(tls.with_no_client_auth()));
    }
    let login = Credentials::new(text(&security["user"]), text(&security["password"]));
    builder = match security["mechanism"].as_str() {
        None => builder,
        Some("PLAIN") => builder.sasl_config(SaslConfig::Plain(login)),
        Some("SCRAM-SHA-256") => builder.sasl_config(SaslConfig::ScramSha256(login)),
        Some("SCRAM-SHA-512") => builder.sasl_config(SaslConfig::ScramSha512(login)),
        Some(other) => return Err(format!("rskafka has no {other}").into()),
    };
    Ok(builder.build().await?)
}

async fn read(client: &Client, request: &Value) -> Outcome<Value> {
    let mut partitions = BTreeMap::new();
    for (name, end) in request["ends"].as_object().ok_or("no ends")? {
        let log = partition(client, request, name.parse()?).await?;
        let found = read_partition(&log, end.as_i64().ok_or("no end")?).await?;
        partitions.insert(name, found);
    }
    Ok(json!({ "partitions": partitions }))
}

async fn read_partition(log: &PartitionClient, end: i64) -> Outcome<Value> {
    let (mut count, mut idle, mut hash) = (0, 0, Sha256::new());
    let mut position = log.get_offset(OffsetAt::Earliest).await?;
    while position < end && idle < IDLE_FETCHES {
        let (records, _) = log.fetch_records(position, 1..FETCH_BYTES, WAIT_MS).await?;
        idle = if records.is_empty() { idle + 1 } else { 0 };
        for record in &records {
            add(&mut hash, record);
            position = record.offset + 1;
        }
        count += records.len();
    }
    Ok(json!([count, format!("{:x}", hash.finalize())]))
}

fn add(hash: &mut Sha256, RecordAndOffset { record, offset }: &RecordAndOffset) {
    hash.update(offset.to_be_bytes());
    hash.update(record.timestamp.timestamp_millis().to_be_bytes());
    add_bytes(hash, record.key.as_deref());
    add_bytes(hash, record.value.as_deref());
    hash.update((record.headers.len() as i32).to_be_bytes());
    for (name, value) in &record.headers {
        add_bytes(hash, Some(name.as_bytes()));
        add_bytes(hash, Some(value));
    }
}

fn add_bytes(hash: &mut Sha256, bytes: Option<&[u8]>) {
    hash.update(bytes.map_or(-1, |known| known.len() as i32).to_be_bytes());
    hash.update(bytes.unwrap_or_default());
}

async fn lookup(client: &Client, request: &Value) -> Outcome<Value> {
    let mut offsets = Vec::new();
    for asked in request["asked"].as_array().ok_or("nothing asked")? {
        let number = asked[0].as_i64().ok_or("no partition")? as i32;
        let time = asked[1].as_i64().and_then(DateTime::from_timestamp_millis);
        let at = OffsetAt::Timestamp(time.ok_or("no time of chrono's")?);
        offsets.push(partition(client, request, number).await?.get_offset(at).await?);
    }
    Ok(json!({ "offsets": offsets }))
}

async fn topics(client: &Client) -> Outcome<Value> {
    let found = client.list_topics().await?;
    let counts: BTreeMap<_, _> = found.iter().map(|t| (&t.name, t.partitions.len())).collect();
    Ok(json!({ "topics": counts }))
}

async fn partition(client: &Client, request: &Value, number: i32) -> Outcome<PartitionClient> {
    let topic = text(&request["topic"]);
    Ok(client.partition_client(topic, number, UnknownTopicHandling::Error).await?)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
